// B is stored as its transpose, N x K, as the weights of a layer are.
__global__ void linear(const float *input, const float *weight, float *output, int m, int n, int k)
{
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m || j >= n)
        return;
    float sum = 0.0f;
    for (int p = 0; p < k; ++p)
        sum += input[i * k + p] * weight[j * k + p];
    output[i * n + j] = sum;
}
