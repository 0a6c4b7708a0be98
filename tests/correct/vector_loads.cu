// float4 loads and stores; the tile of A is transposed on its way to shared memory.

// /// gemm
// block    = [64]
// grid     = ["N // 32", "M // 32"]
// requires = ["M % 32 == 0", "N % 32 == 0", "K % 8 == 0"]
// sizes    = ["64x32x24"]
// ///

constexpr int BM = 32, BN = 32, BK = 8;

__global__ void vector_loads(const float* __restrict__ A, const float* __restrict__ B,
                             float* __restrict__ C, int M, int N, int K)
{
    __shared__ __align__(16) float As[BK * BM];
    __shared__ alignas(16) float Bs[BK * BN];
    A += blockIdx.y * BM * K;
    B += blockIdx.x * BN;
    C += blockIdx.y * BM * N + blockIdx.x * BN;
    const int thread = threadIdx.x;
    const int a_row = thread / (BK / 4), a_col = thread % (BK / 4) * 4;
    const int b_row = thread / (BN / 4), b_col = thread % (BN / 4) * 4;
    const int row = thread / 8 * 4, col = thread % 8 * 4;

    float acc[4][4] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        const float4 a = reinterpret_cast<const float4*>(&A[a_row * K + a_col])[0];
        As[(a_col + 0) * BM + a_row] = a.x;
        As[(a_col + 1) * BM + a_row] = a.y;
        As[(a_col + 2) * BM + a_row] = a.z;
        As[(a_col + 3) * BM + a_row] = a.w;
        *reinterpret_cast<float4*>(&Bs[b_row * BN + b_col]) =
            *reinterpret_cast<const float4*>(&B[b_row * N + b_col]);
        __syncthreads();
        A += BK;
        B += BK * N;
        for (int k = 0; k < BK; ++k) {
            const float4 m = *reinterpret_cast<const float4*>(&As[k * BM + row]);
            const float4 n = *reinterpret_cast<const float4*>(&Bs[k * BN + col]);
            const float a_frag[4] = {m.x, m.y, m.z, m.w}, b_frag[4] = {n.x, n.y, n.z, n.w};
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j)
                    acc[i][j] += a_frag[i] * b_frag[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        float4 out = make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
        reinterpret_cast<float4*>(&C[(row + i) * N + col])[0] = out;
    }
}
