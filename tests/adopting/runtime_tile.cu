// The side of a tile is an argument.
#include <cstdio>
#include <vector>

__global__ void matmul(const float *a, const float *b, float *c, int n, int k, int m, int tile)
{
    extern __shared__ float both[];
    float *as = both, *bs = both + tile * tile;
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * tile + ty, col = blockIdx.x * tile + tx;
    float sum = 0;
    for (int start = 0; start < k; start += tile) {
        as[ty * tile + tx] = row < n && start + tx < k ? a[row * k + start + tx] : 0;
        bs[ty * tile + tx] = col < m && start + ty < k ? b[(start + ty) * m + col] : 0;
        __syncthreads();
        for (int i = 0; i < tile; ++i)
            sum += as[ty * tile + i] * bs[i * tile + tx];
        __syncthreads();
    }
    if (row < n && col < m)
        c[row * m + col] = sum;
}

int main()
{
    int n = 1000, k = 500, m = 700, tile = 16;
    std::vector<float> h_c(n * m);
    float *d_a, *d_b, *d_c;
    cudaMalloc(&d_a, n * k * sizeof(float));
    cudaMalloc(&d_b, k * m * sizeof(float));
    cudaMalloc(&d_c, n * m * sizeof(float));
    dim3 threads(tile, tile), blocks((m + tile - 1) / tile, (n + tile - 1) / tile);
    matmul<<<blocks, threads, 2 * tile * tile * sizeof(float)>>>(d_a, d_b, d_c, n, k, m, tile);
    cudaMemcpy(h_c.data(), d_c, n * m * sizeof(float), cudaMemcpyDeviceToHost);
    printf("%f\n", h_c[0]);
}
