// A tile that is a template's parameter, an element type too, and no launch that gives them.
template <typename T, int TILE>
__global__ void tiled(const T *a, const T *b, T *c, int m, int k, int n)
{
    __shared__ T as[TILE][TILE];
    __shared__ T bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int col = blockIdx.x * TILE + threadIdx.x;
    T acc = T(0);
    for (int t = 0; t < (k + TILE - 1) / TILE; ++t) {
        int ac = t * TILE + threadIdx.x, br = t * TILE + threadIdx.y;
        as[threadIdx.y][threadIdx.x] = row < m && ac < k ? a[row * k + ac] : T(0);
        bs[threadIdx.y][threadIdx.x] = br < k && col < n ? b[br * n + col] : T(0);
        __syncthreads();
        for (int i = 0; i < TILE; ++i)
            acc += as[threadIdx.y][i] * bs[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n)
        c[row * n + col] = acc;
}
