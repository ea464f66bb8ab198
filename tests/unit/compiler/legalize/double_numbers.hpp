// f64 arrays of the tests of the pass `split_double`: run as pairs, compared as numbers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "graph_builder.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "legalize/double/split_double.hpp"
#include "tensors.hpp"

namespace tpu::compiler::test {

using Doubles = std::vector<double>;

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline Type f64(Dims dims) { return {Elem::kF64, std::move(dims)}; }

inline void expect_no_doubles(const Module& m) {
  walk(m.main->body, [](const Op& op) {
    for (const auto& r : op.results) {
      EXPECT_NE(r->type.elem, Elem::kF64) << print(op);
    }
  });
}

// Splits and runs.
inline std::vector<Tensor> run_doubles(Module& m, const std::vector<Tensor>& args) {
  verify(m);
  EXPECT_TRUE(split_double(m));
  m.number_ops();
  verify(m);
  expect_no_doubles(m);
  return interpret(m, {args}, {})[0];
}

inline Tensor bits_of(const Doubles& x, Dims dims) {
  return tensor(Type{Elem::kU64, std::move(dims)}, x);
}
inline Tensor bits_of(const Doubles& x) { return bits_of(x, {static_cast<int64_t>(x.size())}); }

// Of 48 bits, so that pairs hold them.
inline Doubles random_numbers(size_t count, uint32_t seed, double scale = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, scale);
  Doubles out;
  for (size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint64_t>(normal(random));
    out.push_back(std::bit_cast<double>(bits & ~uint64_t{0x3f}));
  }
  return out;
}

inline double largest_error(const Doubles& made, const Doubles& wanted) {
  double worst = 0;
  for (size_t i = 0; i < made.size(); ++i) {
    const double gap = made[i] == wanted[i] ? 0 : std::abs(made[i] - wanted[i]);
    worst = std::max(worst, std::isnan(gap) ? kInf : gap / std::abs(wanted[i]));
  }
  return worst;
}

}  // namespace tpu::compiler::test
