// See fourier_tables.hpp.
#include "legalize/complex/fourier_tables.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <numbers>

namespace tpu::compiler::fourier {
namespace {

constexpr int64_t kMostDirect = 256;       // points of one product
constexpr int64_t kMostDirectPrime = 512;  // where there is no factor
constexpr int64_t kTile = 128;             // rows and columns of a matrix unit
constexpr double kTwiddleCost = 0.25;      // of one element, in rows through a matrix unit

double direct_cost(int64_t n) {
  const auto tiles = static_cast<double>((n + kTile - 1) / kTile);
  return tiles * tiles;
}

struct Choice {
  double cost;  // of one transform
  int64_t factor;
};

Choice choose(int64_t n, std::map<int64_t, Choice>& known) {
  if (n <= kMostDirect) {
    return {direct_cost(n), n};
  }
  if (const auto it = known.find(n); it != known.end()) {
    return it->second;
  }
  Choice best{std::numeric_limits<double>::infinity(), 0};
  for (int64_t d = 2; d <= kMostDirect; ++d) {
    if (n % d != 0) {
      continue;
    }
    const double rest = choose(n / d, known).cost;
    const double cost = static_cast<double>(n / d) * direct_cost(d) +
                        static_cast<double>(d) * rest + kTwiddleCost * static_cast<double>(n);
    if (cost < best.cost) {
      best = {cost, d};
    }
  }
  if (best.factor == 0 && n <= kMostDirectPrime) {
    best = {direct_cost(n), n};
  }
  if (best.factor == 0) {  // by a chirp: two transforms of about four times the length
    best.cost = 16 * static_cast<double>(n);
  }
  return known[n] = best;
}

// Radix 2, in place; the size is a power of two.
void transform(std::vector<std::complex<double>>& x) {
  const size_t n = x.size();
  for (size_t i = 1, j = 0; i < n; ++i) {
    size_t bit = n >> 1;
    for (; (j & bit) != 0; bit >>= 1) {
      j ^= bit;
    }
    j ^= bit;
    if (i < j) {
      std::swap(x[i], x[j]);
    }
  }
  for (size_t length = 2; length <= n; length *= 2) {
    std::vector<std::complex<double>> roots(length / 2);
    for (size_t k = 0; k < roots.size(); ++k) {
      roots[k] = root_of_unity(-static_cast<int64_t>(k), static_cast<int64_t>(length));
    }
    for (size_t first = 0; first < n; first += length) {
      for (size_t k = 0; k < roots.size(); ++k) {
        const auto a = x[first + k];
        const auto b = x[first + k + roots.size()] * roots[k];
        x[first + k] = a + b;
        x[first + k + roots.size()] = a - b;
      }
    }
  }
}

}  // namespace

std::complex<double> root_of_unity(int64_t m, int64_t n) {
  m %= n;
  m = m < 0 ? m + n : m;
  const bool below = 2 * m > n;  // the lower half of the circle
  const int64_t half = 4 * (below ? n - m : m);
  const bool left = half > n;
  const int64_t quarter = left ? 2 * n - half : half;  // of 4 n for the whole circle
  const bool steep = 2 * quarter > n;
  const int64_t eighth = steep ? n - quarter : quarter;
  const double angle = std::numbers::pi / 2 * static_cast<double>(eighth) / static_cast<double>(n);
  double re = std::cos(angle);
  double im = 2 * quarter == n ? re : std::sin(angle);
  if (steep) {
    std::swap(re, im);
  }
  return {left ? -re : re, below ? -im : im};
}

std::vector<std::complex<double>> matrix(int64_t rows, int64_t columns, int64_t n, int sign,
                                         double scale) {
  std::vector<std::complex<double>> out;
  out.reserve(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      out.push_back(root_of_unity(sign * (r * c % n), n) * scale);
    }
  }
  return out;
}

std::vector<std::complex<double>> chirp(int64_t n, int sign) {
  std::vector<std::complex<double>> out;
  out.reserve(static_cast<size_t>(n));
  int64_t square = 0;  // k^2 modulo 2 n
  for (int64_t k = 0; k < n; ++k) {
    out.push_back(root_of_unity(sign * square, 2 * n));
    square = (square + 2 * k + 1) % (2 * n);
  }
  return out;
}

std::vector<std::complex<double>> chirp_spectrum(int64_t n, int64_t size, int sign, double scale) {
  const auto one_side = chirp(n, -sign);
  std::vector<std::complex<double>> all(static_cast<size_t>(size));
  for (size_t k = 0; k < one_side.size(); ++k) {
    all[k] = one_side[k] * scale;
    all[k == 0 ? 0 : all.size() - k] = all[k];
  }
  transform(all);
  return all;
}

int64_t first_factor(int64_t n) {
  std::map<int64_t, Choice> known;
  return choose(n, known).factor;
}

}  // namespace tpu::compiler::fourier
