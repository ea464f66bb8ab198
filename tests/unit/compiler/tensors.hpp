// Tensors of typed values for tests of graph evaluation.
#pragma once

#include <cstring>
#include <vector>

#include "ir/eval.hpp"

namespace tpu::compiler::test {

template <typename T>
Tensor tensor(const Type& type, const std::vector<T>& values) {
  return to_tensor(make_dense_of<T>(type, values));
}

template <typename T>
std::vector<T> values(const Tensor& t) {
  std::vector<T> out(t.data.size() / sizeof(T));
  std::memcpy(out.data(), t.data.data(), t.data.size());
  return out;
}

}  // namespace tpu::compiler::test
