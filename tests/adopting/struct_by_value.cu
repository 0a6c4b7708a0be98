// Each matrix is a struct that carries its size.
#include <cuda_runtime.h>

typedef struct {
    int width;
    int height;
    float *elements;
} Matrix;

__global__ void multiply(Matrix A, Matrix B, Matrix C)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= C.height || col >= C.width)
        return;
    float value = 0;
    for (int e = 0; e < A.width; ++e)
        value += A.elements[row * A.width + e] * B.elements[e * B.width + col];
    C.elements[row * C.width + col] = value;
}

int main()
{
    Matrix A, B, C;
    A.width = 64;
    multiply<<<dim3(4, 4), dim3(16, 16)>>>(A, B, C);
}
