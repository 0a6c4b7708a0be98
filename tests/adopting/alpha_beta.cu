// alpha and beta, with names that do not say which is which.
__global__ void scaled(int rows, int cols, int inner, float s, const float *x, const float *y,
                       float t, float *z)
{
    int c = threadIdx.x + blockIdx.x * blockDim.x;
    int r = threadIdx.y + blockIdx.y * blockDim.y;
    if (r >= rows || c >= cols)
        return;
    float sum = 0.0f;
    for (int i = 0; i < inner; ++i)
        sum += x[r * inner + i] * y[i * cols + c];
    z[r * cols + c] = t == 0.0f ? s * sum : s * sum + t * z[r * cols + c];
}
