// N, M, K in an order of their own, and names that say nothing.
__global__ void kernel7(float *p, float *q, float *r, int s, int t, int u)
{
    // r is t x s, p is t x u, q is u x s
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= s || y >= t) return;
    float v = 0.f;
    for (int z = 0; z < u; ++z) v += p[y * u + z] * q[z * s + x];
    r[y * s + x] = v;
}
