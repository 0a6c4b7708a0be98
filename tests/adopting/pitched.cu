// Rows of cudaMallocPitch: a pitch is in bytes.
#define KERNEL extern "C" __global__ void

KERNEL pitched(const float *A, size_t pitchA, const float *B, size_t pitchB, float *C, size_t pitchC,
               int M, int N, int K)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;
    const float *a = (const float *)((const char *)A + row * pitchA);
    float sum = 0;
    for (int k = 0; k < K; ++k)
        sum += a[k] * ((const float *)((const char *)B + k * pitchB))[col];
    ((float *)((char *)C + row * pitchC))[col] = sum;
}
