// Discrete Fourier transforms as products with constant matrices at precision `highest`.
//   before   y = fft(x) {length = [4096]} : complex64[8,4096]
//   after    x as [8,64,64]; z = x . F64 over dimension 1, times twiddles; y = z . F64, turned
// A length is cut into factors of at most 256, each of which is one product. A length with a larger
// prime factor is a convolution with a chirp (Bluestein), by transforms of a power of two.
#pragma once

#include "legalize/complex/complex_math.hpp"

namespace tpu::compiler {

// Parts of the result of `op`, a fft. The operand of an RFFT and the result of an IRFFT have no
// imaginary part: null.
Complex fourier_transform(const Op& op, const Complex& x, Rewriter& rw);

}  // namespace tpu::compiler
