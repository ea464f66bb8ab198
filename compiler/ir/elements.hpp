// Element access for evaluation: floats as float (bf16 widened), integers and i1 as int64_t (ui64
// by its bits). Stores round floats to the element type and wrap integers to its width. Private to
// ir/.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "ir/eval.hpp"

namespace tpu::compiler::eval {

std::vector<float> load_floats(const Tensor& t);
std::vector<int64_t> load_ints(const Tensor& t);
void store_floats(const std::vector<float>& values, Tensor& t);
void store_ints(const std::vector<int64_t>& values, Tensor& t);

// One element, for scalars such as indices and predicates.
int64_t int_at(const Tensor& t, size_t i);

// to[j] = from[i], of one element type.
inline void copy_element(const Tensor& from, int64_t i, Tensor& to, int64_t j) {
  const auto size = static_cast<size_t>(elem_bytes(to.type.elem));
  std::memcpy(to.data.data() + static_cast<size_t>(j) * size,
              from.data.data() + static_cast<size_t>(i) * size, size);
}

float canonical(float x);  // the canonical NaN, subnormals to zero

}  // namespace tpu::compiler::eval
