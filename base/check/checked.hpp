// Arithmetic on numbers that come from outside: sizes and counts of configurations, files and
// options. Nothing here wraps around: what does not fit is an empty result or an error.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tpu/error.hpp"
#include "tpu/types.hpp"

namespace tpu::driver {

template <std::integral Number>
std::optional<Number> checked_sum(Number a, Number b) {
  Number result;
  return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
}

template <std::integral Number>
std::optional<Number> checked_product(Number a, Number b) {
  Number result;
  return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
}

/// Throws InvalidArgument that names `what` when there is no result.
template <std::integral Number>
Number need_fit(std::optional<Number> result, const std::string& what) {
  if (!result) {
    throw Error(ErrorCode::kInvalidArgument, what + ": the value does not fit into " +
                                                 std::to_string(8 * sizeof(Number)) +
                                                 " bits; use smaller values");
  }
  return *result;
}

/// Bytes of a dense array. Throws InvalidArgument that names `what` for shapes without a size.
inline uint64_t array_bytes(DType dtype, const Shape& shape, const std::string& what) {
  uint64_t count = 0;
  try {
    count = element_count(shape);
  } catch (const Error& error) {
    throw Error(ErrorCode::kInvalidArgument, what + ": " + error.message());
  }
  return need_fit(checked_product(count, dtype_bytes(dtype)), what);
}

/// All of `digits` as a number; nothing when it is none or does not fit.
inline std::optional<uint64_t> whole_number(std::string_view digits) {
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return std::nullopt;
  }
  return n;
}

}  // namespace tpu::driver
