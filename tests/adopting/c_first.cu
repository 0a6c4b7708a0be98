// The result comes first, and only the two widths are passed.
#include <cstdio>
#include <cuda_runtime.h>

template <int SIDE>
__global__ void product(float *C, float *A, float *B, int wA, int wB)
{
    int first_of_a = wA * SIDE * blockIdx.y;
    int last_of_a = first_of_a + wA - 1;
    int b = SIDE * blockIdx.x;
    float total = 0;
    for (int a = first_of_a; a <= last_of_a; a += SIDE) {
        __shared__ float from_a[SIDE][SIDE];
        __shared__ float from_b[SIDE][SIDE];
        from_a[threadIdx.y][threadIdx.x] = A[a + wA * threadIdx.y + threadIdx.x];
        from_b[threadIdx.y][threadIdx.x] = B[b + wB * threadIdx.y + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < SIDE; ++k)
            total += from_a[threadIdx.y][k] * from_b[k][threadIdx.x];
        __syncthreads();
        b += SIDE * wB;
    }
    int c = wB * SIDE * blockIdx.y + SIDE * blockIdx.x;
    C[c + wB * threadIdx.y + threadIdx.x] = total;
}

int main()
{
    dim3 sizeA(320, 640), sizeB(480, 320);
    const int side = 32;
    float *d_A, *d_B, *d_C;
    cudaMalloc(&d_A, sizeA.x * sizeA.y * sizeof(float));
    cudaMalloc(&d_B, sizeB.x * sizeB.y * sizeof(float));
    cudaMalloc(&d_C, sizeA.y * sizeB.x * sizeof(float));
    dim3 threads(side, side);
    dim3 grid(sizeB.x / threads.x, sizeA.y / threads.y);
    product<32><<<grid, threads>>>(d_C, d_A, d_B, sizeA.x, sizeB.x);
    printf("done %d\n", cudaDeviceSynchronize());
}
