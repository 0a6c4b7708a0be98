// Half in, float sums, half out; the type is a template's, and the launch says which.
#include <cuda_fp16.h>

template <typename T>
__global__ void multiply(const T *left, const T *right, T *out, int height, int common, int width)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= height || col >= width)
        return;
    float sum = 0.0f;
    for (int i = 0; i < common; ++i)
        sum += float(left[row * common + i]) * float(right[i * width + col]);
    out[row * width + col] = T(sum);
}

void run(const half *left, const half *right, half *out, int height, int common, int width)
{
    dim3 block(32, 4);
    dim3 grid((width + 31) / 32, (height + 3) / 4);
    multiply<half><<<grid, block>>>(left, right, out, height, common, width);
}
