// One thread for each element, numbered through the whole of C.
__global__ void flat(const float *a, const float *b, float *c, unsigned m, unsigned k, unsigned n)
{
    unsigned id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id < m * n) {
        unsigned row = id / n, col = id % n;
        float sum = 0.0f;
        for (unsigned i = 0; i < k; ++i)
            sum += a[row * k + i] * b[i * n + col];
        c[id] = sum;
    }
}
