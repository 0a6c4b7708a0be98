// /// gemm
// name = "int8_without_sign"
// entry = "gemm<0>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "int8"
// ///

// /// gemm
// name = "int8_saturates"
// entry = "gemm<1>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "int8"
// ///

// /// gemm
// name = "int8_one_term_more"
// entry = "gemm<2>"
// block = [16, 16]
// grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
// dtype = "int8"
// ///

template <int mistake>
__global__ void gemm(const signed char* A, const signed char* B, int* C, int M, int N, int K)
{
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N)
        return;
    int acc = 0;
    for (int k = 0; k < K + (mistake == 2); ++k) {
        const signed char a = A[row * K + k];
        acc += (mistake == 0 ? (unsigned char)a : a) * B[k * N + col];
        if (mistake == 1)
            acc = max(-32768, min(acc, 32767));
    }
    C[row * N + col] = acc;
}
