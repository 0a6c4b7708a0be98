// Products one after another, whose count has the name of a matrix.
__global__ void bmm(float* out, const float* x, const float* y, int B, int M, int K, int N)
{
    int b = blockIdx.z;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B || row >= M || col >= N)
        return;
    float sum = 0;
    for (int k = 0; k < K; ++k)
        sum += x[(b * M + row) * K + k] * y[(b * K + k) * N + col];
    out[(b * M + row) * N + col] = sum;
}
