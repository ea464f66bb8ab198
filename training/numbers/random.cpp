// No function of the C math library but sqrt (exact by IEEE 754) is called here; the build forbids
// contraction to fma. So the bits do not depend on the host.
#include "numbers/random.hpp"

#include <cmath>
#include <numeric>
#include <utility>

namespace tpu::training {
namespace {

constexpr double kLn2Hi = 6.93147180369123816490e-01;
constexpr double kLn2Lo = 1.90821492927058770002e-10;
constexpr int kLogTerms = 14;

// Natural logarithm of a normal positive number: x = m * 2^e, m in [sqrt(1/2), sqrt(2)), and
// ln m = 2 * (s + s^3/3 + s^5/5 ...) with s = (m - 1) / (m + 1), |s| < 0.172.
double portable_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // exact
  if (m < 0.70710678118654752440) {
    m *= 2.0;
    --exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double sum = 0.0;
  for (int k = kLogTerms; k >= 0; --k) {
    sum = sum * s2 + 1.0 / (2.0 * k + 1.0);
  }
  const double e = exponent;
  return e * kLn2Hi + (e * kLn2Lo + 2.0 * s * sum);
}

template <size_t N>
double polynomial(const std::array<double, N>& c, double x) {
  double sum = c[N - 1];
  for (size_t i = N - 1; i-- > 0;) {
    sum = sum * x + c[i];
  }
  return sum;
}

// Coefficients of AS 241 (PPND16): centre, and two tails.
constexpr std::array<double, 8> kA = {3.3871328727963666080e0,  1.3314166789178437745e+2,
                                      1.9715909503065514427e+3, 1.3731693765509461125e+4,
                                      4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                      3.3430575583588128105e+4, 2.5090809287301226727e+3};
constexpr std::array<double, 8> kB = {1.0,
                                      4.2313330701600911252e+1,
                                      6.8718700749205790830e+2,
                                      5.3941960214247511077e+3,
                                      2.1213794301586595867e+4,
                                      3.9307895800092710610e+4,
                                      2.8729085735721942674e+4,
                                      5.2264952788528545610e+3};
constexpr std::array<double, 8> kC = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                      5.76949722146069140550e0,  3.64784832476320460504e0,
                                      1.27045825245236838258e0,  2.41780725177450611770e-1,
                                      2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr std::array<double, 8> kD = {1.0,
                                      2.05319162663775882187e0,
                                      1.67638483018380384940e0,
                                      6.89767334985100004550e-1,
                                      1.48103976427480074590e-1,
                                      1.51986665636164571966e-2,
                                      5.47593808499534494600e-4,
                                      1.05075007164441684324e-9};
constexpr std::array<double, 8> kE = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                      1.78482653991729133580e0,  2.96560571828504891230e-1,
                                      2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                      2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr std::array<double, 8> kF = {1.0,
                                      5.99832206555887937690e-1,
                                      1.36929880922735805310e-1,
                                      1.48753612908506148525e-2,
                                      7.86869131145613259100e-4,
                                      1.84631831751005468180e-5,
                                      1.42151175831644588870e-7,
                                      2.04426310338993978564e-15};

}  // namespace

RandomStream::RandomStream(uint64_t seed, RandomPurpose purpose, uint32_t stream)
    : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
      stream_(stream),
      purpose_(static_cast<uint32_t>(purpose)) {}

uint64_t RandomStream::word(uint64_t index) const {
  const uint64_t block = index / 2;
  const auto words = philox(
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), stream_, purpose_}, key_);
  const size_t pair = static_cast<size_t>(index % 2) * 2;
  return uint64_t{words[pair + 1]} << 32 | words[pair];
}

// The high half of word * n, by halves of the word: right for n up to 2^32, which is all there is.
uint64_t RandomStream::below(uint64_t index, uint64_t n) const {
  const uint64_t number = word(index);
  const uint64_t low = (number & 0xFFFFFFFFu) * n;
  return ((number >> 32) * n + (low >> 32)) >> 32;
}

double RandomStream::uniform(uint64_t index) const {
  constexpr double kStep = 1.0 / 4503599627370496.0;  // 2^-52: k + 0.5 is exact and below 1
  return (static_cast<double>(word(index) >> 12) + 0.5) * kStep;
}

double RandomStream::normal(uint64_t index) const { return inverse_normal(uniform(index)); }

double inverse_normal(double p) {
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(kA, r) / polynomial(kB, r);
  }
  double r = std::sqrt(-portable_log(q < 0.0 ? p : 1.0 - p));
  double value = 0.0;
  if (r <= 5.0) {
    r -= 1.6;
    value = polynomial(kC, r) / polynomial(kD, r);
  } else {
    r -= 5.0;
    value = polynomial(kE, r) / polynomial(kF, r);
  }
  return q < 0.0 ? -value : value;
}

std::vector<uint32_t> permutation(const RandomStream& stream, size_t count) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  for (size_t j = 0; j + 1 < count; ++j) {
    const size_t last = count - 1 - j;
    const uint64_t pick = stream.below(j, last + 1);
    std::swap(order[last], order[pick]);
  }
  return order;
}

}  // namespace tpu::training
