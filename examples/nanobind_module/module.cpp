// The Python side: matrices come by DLPack, and nanobind checks their type and device.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <stdexcept>

namespace nb = nanobind;

#ifdef ON_GPU
using Device = nb::device::cuda;
#else
using Device = nb::device::cpu;
#endif

using Input = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, Device>;
using Output = nb::ndarray<float, nb::ndim<2>, nb::c_contig, Device>;

const char* multiply(const float* A, const float* B, float* C, int M, int N, int K, void* stream);

NB_MODULE(NAME, module)
{
    module.def("multiply", [](Input A, Input B, Output C, std::uintptr_t stream) {
        const char* error = multiply(A.data(), B.data(), C.data(), int(A.shape(0)),
                                     int(B.shape(1)), int(A.shape(1)), (void*)stream);
        if (error)
            throw std::runtime_error(error);
    });
}
