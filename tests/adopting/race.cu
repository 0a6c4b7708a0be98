// The second barrier of the loop is missing.
#define TILE_WIDTH 16

__global__ void shared_tiles(const float *M, const float *N, float *P, int height, int inner, int width)
{
    __shared__ float Ms[TILE_WIDTH][TILE_WIDTH];
    __shared__ float Ns[TILE_WIDTH][TILE_WIDTH];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE_WIDTH + ty, col = blockIdx.x * TILE_WIDTH + tx;
    float value = 0;
    for (int ph = 0; ph < (inner + TILE_WIDTH - 1) / TILE_WIDTH; ++ph) {
        int a = ph * TILE_WIDTH + tx, b = ph * TILE_WIDTH + ty;
        Ms[ty][tx] = row < height && a < inner ? M[row * inner + a] : 0.0f;  // races
        Ns[ty][tx] = b < inner && col < width ? N[b * width + col] : 0.0f;  // races
        __syncthreads();
        for (int k = 0; k < TILE_WIDTH; ++k)
            value += Ms[ty][k] * Ns[k][tx];  // races
    }
    if (row < height && col < width)
        P[row * width + col] = value;
}
