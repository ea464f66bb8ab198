// Shapes of the interface. Arrays lie in the memory of a core as on the host: row-major, without
// padding. An array with a bounded dynamic dimension has room for its bound, and behind it the size
// of each dimension, 4 bytes each.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "abi/types.h"
#include "client_version.hpp"
#include "tpu/types.hpp"

namespace tpu::tensorflow {

template <typename T>
std::span<const T> members(const TpuList<T>& list) {
  return {list.size > kTpuInlined ? list.heap : list.inlined, static_cast<size_t>(list.size)};
}

/// Shapes are where TensorFlow has made room, or in an OwnedShape: those of its version can be
/// longer than the type says. So none is copied but by copy_shape().
inline size_t shape_bytes() { return sizeof(XLA_Shape) + more_in_layout(); }
/// Of the shapes of a tuple.
XLA_Shape& member(const XLA_Shape& tuple, int number);

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
/// A copy of a shape with what it needs.
class OwnedShape {
 public:
  explicit OwnedShape(const XLA_Shape& from);
  ~OwnedShape();
  OwnedShape(const OwnedShape&) = delete;
  OwnedShape& operator=(const OwnedShape&) = delete;

  const XLA_Shape& operator*() const { return *shape_; }

 private:
  XLA_Shape* const shape_;
};

/// A row-major array. `to` has nothing to free.
void make_shape(int element_type, const driver::Shape& dims, XLA_Shape& to);

}  // namespace tpu::tensorflow
