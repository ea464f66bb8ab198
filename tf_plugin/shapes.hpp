// Shapes of the interface. Arrays lie in the memory of a core as on the host: row-major, without
// padding. An array with a bounded dynamic dimension has room for its bound, and behind it the size
// of each dimension, 4 bytes each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "abi/types.h"
#include "tpu/types.hpp"

namespace tpu::tensorflow {

template <typename T>
std::span<const T> members(const TpuList<T>& list) {
  return {list.size > kTpuInlined ? list.heap : list.inlined, static_cast<size_t>(list.size)};
}

bool is_tuple(const XLA_Shape& shape);
bool is_dynamic(const XLA_Shape& shape);

/// Throws Unimplemented for element types that arrays of the board cannot have.
driver::DType dtype_of(const XLA_Shape& array);
driver::Shape dims_of(const XLA_Shape& array);

/// Of an array without what a dynamic one has behind it; of a tuple, its table.
uint64_t payload_bytes(const XLA_Shape& shape);
/// With it.
uint64_t device_bytes(const XLA_Shape& shape);

/// Throws Unimplemented unless the array is row-major.
void check_row_major(const XLA_Shape& array);

/// What is in front of the arrays of a shape in the order of its nodes.
struct Leaf {
  const XLA_Shape* shape = nullptr;
  size_t node = 0;             ///< number among all nodes
  std::vector<int64_t> index;  ///< the members of tuples that lead to it
};
std::vector<Leaf> leaves_of(const XLA_Shape& shape);

/// What the caller frees. Arrays without a layout get the row-major one, tiles go.
void copy_shape(const XLA_Shape& from, XLA_Shape& to);
/// Frees what copy_shape() has made.
void free_shape(XLA_Shape& shape);
/// A row-major array. `to` has nothing to free.
void make_shape(int element_type, const driver::Shape& dims, XLA_Shape& to);

}  // namespace tpu::tensorflow
