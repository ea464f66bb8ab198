// Constants of Fourier transforms, computed in f64 and rounded once. Private to fft.cpp.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

namespace tpu::compiler::fourier {

// e^(2 pi i m / n), exact at multiples of an eighth of the circle.
std::complex<double> root_of_unity(int64_t m, int64_t n);

// [rows * columns]: e^(sign 2 pi i r c / n) * scale.
std::vector<std::complex<double>> matrix(int64_t rows, int64_t columns, int64_t n, int sign,
                                         double scale);

// e^(sign pi i k^2 / n) for k < n.
std::vector<std::complex<double>> chirp(int64_t n, int sign);

// Transform of the wrapped conjugate chirp at `size`, a power of two of at least 2 n - 1 elements;
// times `scale`.
std::vector<std::complex<double>> chirp_spectrum(int64_t n, int64_t size, int sign, double scale);

// The first factor of a length: the transform takes it by a product and then goes on with n /
// factor. n: one product does. 0: neither, since a prime factor is too large.
int64_t first_factor(int64_t n);

}  // namespace tpu::compiler::fourier
