// One thread computes a whole row of the result.
__global__ void rowwise(const float *a, const float *b, float *result, int rows, int inner, int cols)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    for (int col = 0; col < cols; ++col) {
        float sum = 0.0f;
        for (int i = 0; i < inner; ++i)
            sum += a[row * inner + i] * b[i * cols + col];
        result[row * cols + col] = sum;
    }
}
