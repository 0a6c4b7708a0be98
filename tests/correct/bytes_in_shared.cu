// Neighbouring threads write neighbouring bytes and halves of a word.

// /// gemm
// block = [16, 16]
// grid  = ["cdiv(N, 16)", "cdiv(M, 16)"]
// ///

struct Cell {
    float value;
    char tag[3];
};

__global__ void bytes_in_shared(const float* A, const float* B, float* C, int M, int N, int K)
{
    __shared__ unsigned char is_inside[256];
    __shared__ unsigned short order[256];
    __shared__ Cell cells[256], copies[256];
    const int thread = threadIdx.y * 16 + threadIdx.x;
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    is_inside[thread] = row < M && col < N;
    order[thread] = 255 - thread;
    __syncthreads();
    const int other = order[thread];
    float acc = 0.0f;
    const int r = blockIdx.y * 16 + other / 16, c = blockIdx.x * 16 + other % 16;
    for (int k = 0; is_inside[other] && k < K; ++k)
        acc += A[r * K + k] * B[k * N + c];
    cells[other].value = acc;
    memset(cells[other].tag, 1, sizeof cells[other].tag);
    memcpy(&copies[other], &cells[other], sizeof copies[other]);
    __syncthreads();
    if (is_inside[thread])
        C[row * N + col] = copies[thread].tag[2] ? copies[thread].value : 0.0f;
}
