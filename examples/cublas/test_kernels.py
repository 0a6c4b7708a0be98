def test_gemm(gemm):
    gemm.check()
