// Heights and widths of the operands, each with its matrix in the name.
__global__ void multiply(const float *matA, const float *matB, float *matC, int hA, int wA, int wB)
{
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < hA && j < wB) {
        float s = 0;
        for (int t = 0; t < wA; t++)
            s += matA[i * wA + t] * matB[t * wB + j];
        matC[i * wB + j] = s;
    }
}
