#include "shapes.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "abi/executor.h"
#include "answer.hpp"
#include "errors.hpp"

namespace tpu::tensorflow {
namespace {

using driver::DType;

// Numbers of PrimitiveType (xla_data.proto).
constexpr int kTuple = 13;
struct ElementType {
  int number;
  DType dtype;
  const char* name;
};
constexpr std::array kElementTypes = {
    ElementType{1, DType::kI1, "pred"},      ElementType{2, DType::kI8, "s8"},
    ElementType{3, DType::kI16, "s16"},      ElementType{4, DType::kI32, "s32"},
    ElementType{5, DType::kI64, "s64"},      ElementType{6, DType::kU8, "u8"},
    ElementType{7, DType::kU16, "u16"},      ElementType{8, DType::kU32, "u32"},
    ElementType{9, DType::kU64, "u64"},      ElementType{10, DType::kBytes2, "f16"},
    ElementType{11, DType::kF32, "f32"},     ElementType{12, DType::kF64, "f64"},
    ElementType{15, DType::kC64, "c64"},     ElementType{16, DType::kBf16, "bf16"},
    ElementType{18, DType::kBytes16, "c128"}};

constexpr uint64_t kAddressBytes = 8, kSizeBytes = 4;

template <typename T>
T* room(TpuList<T>& list, size_t count) {
  list.size = static_cast<int64_t>(count);
  if (list.size <= kTpuInlined) {
    return list.inlined;
  }
  list.heap = new T[count];
  return list.heap;
}

template <typename T>
void copy_list(const TpuList<T>& from, TpuList<T>& to) {
  const auto values = members(from);
  std::ranges::copy(values, room(to, values.size()));
}

XLA_Shape* new_shapes(size_t count) {
  const size_t bytes = count * shape_bytes();
  return static_cast<XLA_Shape*>(std::memset(::operator new[](bytes), 0, bytes));
}

// Lists behind the order of the dimensions.
void clear_rest(XLA_Layout& layout) {
  std::memset(static_cast<void*>(&layout.tiles), 0, more_in_layout() + sizeof layout.tiles);
}

void row_major(size_t rank, XLA_Shape& to) {
  to.has_layout = true;
  clear_with_layout(to.layout);
  behind_layout(to.layout.tail_padding_alignment_in_elements) = 1;
  int64_t* const order = room(to.layout.minor_to_major, rank);
  for (size_t d = 0; d < rank; ++d) {
    order[d] = static_cast<int64_t>(rank - 1 - d);
  }
}

void add_leaves(const XLA_Shape& shape, size_t& node, std::vector<int64_t>& index,
                std::vector<Leaf>& leaves) {
  const size_t own = node++;
  if (!is_tuple(shape)) {
    leaves.push_back({&shape, own, index});
    return;
  }
  for (int i = 0; i < shape.ntuple_shapes; ++i) {
    index.push_back(i);
    add_leaves(member(shape, i), node, index, leaves);
    index.pop_back();
  }
}

template <typename T>
void free_list(TpuList<T>& list) {
  if (list.size > kTpuInlined) {
    delete[] list.heap;
  }
  list = {};
}

}  // namespace

XLA_Shape& member(const XLA_Shape& tuple, int number) {
  auto* const first = reinterpret_cast<std::byte*>(tuple.tuple_shapes);
  return *reinterpret_cast<XLA_Shape*>(first + static_cast<size_t>(number) * shape_bytes());
}

bool is_tuple(const XLA_Shape& shape) { return shape.element_type == kTuple; }

bool is_dynamic(const XLA_Shape& shape) {
  return std::ranges::any_of(members(shape.dynamic_dimensions), [](bool is) { return is; });
}

driver::DType dtype_of(const XLA_Shape& array) {
  for (const ElementType& type : kElementTypes) {
    if (type.number == array.element_type) {
      return type.dtype;
    }
  }
  std::string known;
  for (const ElementType& type : kElementTypes) {
    known += (known.empty() ? "" : ", ") + std::string(type.name);
  }
  pjrt::throw_unimplemented("an array of element type " + std::to_string(array.element_type) +
                            " (number in xla_data.proto): expected one of " + known);
}

driver::Shape dims_of(const XLA_Shape& array) {
  const auto dims = members(array.dimensions);
  return {dims.begin(), dims.end()};
}

uint64_t payload_bytes(const XLA_Shape& shape) {
  if (is_tuple(shape)) {
    return kAddressBytes * static_cast<uint64_t>(shape.ntuple_shapes);
  }
  return driver::byte_count(dtype_of(shape), dims_of(shape));
}

uint64_t device_bytes(const XLA_Shape& shape) {
  const uint64_t sizes =
      is_dynamic(shape) ? kSizeBytes * static_cast<uint64_t>(shape.dimensions.size) : 0;
  return payload_bytes(shape) + sizes;
}

void check_row_major(const XLA_Shape& array) {
  if (!array.has_layout) {
    return;
  }
  const auto order = members(array.layout.minor_to_major);
  for (size_t d = 0; d < order.size(); ++d) {
    if (order[d] != static_cast<int64_t>(order.size() - 1 - d)) {
      pjrt::throw_unimplemented(
          "an array whose dimensions are in another order in memory: expected row-major");
    }
  }
}

std::vector<Leaf> leaves_of(const XLA_Shape& shape) {
  std::vector<Leaf> leaves;
  size_t node = 0;
  std::vector<int64_t> index;
  add_leaves(shape, node, index, leaves);
  return leaves;
}

void copy_shape(const XLA_Shape& from, XLA_Shape& to) {
  std::memcpy(static_cast<void*>(&to), &from, shape_bytes());
  copy_list(from.dimensions, to.dimensions);
  copy_list(from.dynamic_dimensions, to.dynamic_dimensions);
  clear_rest(to.layout);
  if (is_tuple(from)) {
    to.tuple_shapes = nullptr;
    if (from.ntuple_shapes > 0) {
      to.tuple_shapes = new_shapes(static_cast<size_t>(from.ntuple_shapes));
    }
    for (int i = 0; i < from.ntuple_shapes; ++i) {
      copy_shape(member(from, i), member(to, i));
    }
  } else if (from.has_layout) {
    copy_list(from.layout.minor_to_major, to.layout.minor_to_major);
  } else {
    row_major(static_cast<size_t>(from.dimensions.size), to);
  }
}

void free_shape(XLA_Shape& shape) {
  for (int i = 0; is_tuple(shape) && i < shape.ntuple_shapes; ++i) {
    free_shape(member(shape, i));
  }
  if (is_tuple(shape)) {
    ::operator delete[](shape.tuple_shapes);
  } else {
    free_list(shape.layout.minor_to_major);
  }
  free_list(shape.dimensions);
  free_list(shape.dynamic_dimensions);
  clear_with_layout(shape);
}

OwnedShape::OwnedShape(const XLA_Shape& from) : shape_(new_shapes(1)) { copy_shape(from, *shape_); }

OwnedShape::~OwnedShape() {
  free_shape(*shape_);
  ::operator delete[](shape_);
}

void make_shape(int element_type, const driver::Shape& dims, XLA_Shape& to) {
  clear_with_layout(to);
  to.element_type = element_type;
  std::ranges::copy(dims, room(to.dimensions, dims.size()));
  std::fill_n(room(to.dynamic_dimensions, dims.size()), dims.size(), false);
  row_major(dims.size(), to);
}

namespace {

int64_t size_or_nothing(const char* name, const XLA_Shape* shape,
                        uint64_t (*size)(const XLA_Shape&)) {
  int64_t bytes = 0;
  answer(name, nullptr, [&] { bytes = static_cast<int64_t>(size(*shape)); });
  return bytes;
}

}  // namespace
}  // namespace tpu::tensorflow

using tpu::tensorflow::answer;
using tpu::tensorflow::copy_shape;
using tpu::tensorflow::device_bytes;
using tpu::tensorflow::size_or_nothing;

extern "C" {

void XlaShapeToTpuShapeRepresentation(XLA_Shape* shape, int /*data_type*/, bool /*use_fast_memory*/,
                                      XLA_Shape* tpu_shape, TF_Status* status) {
  answer(__func__, status, [&] { copy_shape(*shape, *tpu_shape); });
}

void XlaShapeToTpuPaddedShape(XLA_Shape* shape, XLA_Shape* padded_shape, TF_Status* status) {
  answer(__func__, status, [&] { copy_shape(*shape, *padded_shape); });
}

void HardwareLayout_HostShapeToDeviceShape(XLA_Shape* host, XLA_Shape* device) {
  answer(__func__, nullptr, [&] { copy_shape(*host, *device); });
}

int64_t HardwareLayout_ShapeSize(XLA_Shape* shape) {
  return size_or_nothing("HardwareLayout_ShapeSize", shape, device_bytes);
}

int64_t HardwareLayout_ShapeSizeCompact(XLA_Shape* shape) {
  return size_or_nothing("HardwareLayout_ShapeSizeCompact", shape, device_bytes);
}

int64_t HardwareLayout_ShapeSizeCompactRaw(XLA_Shape* shape) {
  return size_or_nothing("HardwareLayout_ShapeSizeCompactRaw", shape, device_bytes);
}

void TpuTransferManager_HostShapeToDeviceShape(XLA_TransferManager* /*manager*/, XLA_Shape* host,
                                               XLA_Shape* device) {
  answer(__func__, nullptr, [&] { copy_shape(*host, *device); });
}

int64_t TpuTransferManager_GetByteSizeRequirement(XLA_TransferManager* /*manager*/,
                                                  XLA_Shape* shape) {
  return size_or_nothing("TpuTransferManager_GetByteSizeRequirement", shape, device_bytes);
}

void TpuTransferManager_ChooseCompactLayoutForShape(XLA_TransferManager* /*manager*/,
                                                    XLA_Shape* host, XLA_Shape* chosen,
                                                    TF_Status* status) {
  answer(__func__, status, [&] { copy_shape(*host, *chosen); });
}

int64_t TpuCompiler_ShapeSize(Tpu_Compiler* /*compiler*/, XLA_Shape* shape) {
  return size_or_nothing("TpuCompiler_ShapeSize", shape, device_bytes);
}

void TpuCompiler_DefaultDeviceShapeRepresentation(Tpu_Compiler* /*compiler*/, XLA_Shape* host,
                                                  XLA_Shape* device) {
  answer(__func__, nullptr, [&] { copy_shape(*host, *device); });
}

}  // extern "C"
