// Columns one after another, as in BLAS.
#define AT(X, i, j, ld) X[(i) + (j) * (ld)]

__global__ void colmajor(int m, int n, int k, const float *A, const float *B, float *C)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < m && j < n) {
        float acc = 0;
        for (int p = 0; p < k; ++p)
            acc += AT(A, i, p, m) * AT(B, p, j, k);
        AT(C, i, j, m) = acc;
    }
}
