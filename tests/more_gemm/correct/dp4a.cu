// /// gemm
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "int8"
// transb = "T"
// requires = ["K % 4 == 0"]
// ///

__global__ void dp4a(const int* A, const int* B, int* C, int M, int N, int K)
{
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N)
        return;
    int acc = 0;
    for (int k = 0; k < K / 4; ++k)
        acc = __dp4a(A[row * (K / 4) + k], B[col * (K / 4) + k], acc);
    C[row * N + col] = acc;
}
