"""What the kernels with an epilogue should compute."""

import numpy as np


def relu(A, B, alpha):
    return np.maximum(alpha * (A @ B), 0)


def gelu(A, B):
    x = A @ B
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def residual(A, B, C, alpha):
    return np.maximum(alpha * (A @ B) + C, 0) + C / 4
