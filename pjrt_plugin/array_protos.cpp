// Arrays as XLA's protocol buffers say them: xla/xla_data.proto. See protos.hpp.
#include <array>
#include <numeric>
#include <utility>

#include "errors.hpp"
#include "proto_wire.hpp"
#include "protos.hpp"

namespace tpu::pjrt {
namespace {

using compiler::Elem;
using compiler::TileList;

enum ShardingType : uint64_t { kReplicated = 0, kMaximal = 1, kTuple = 2, kOther = 3 };

constexpr std::array kPrimitiveTypes =
    std::to_array<std::pair<Elem, uint64_t>>({{Elem::kI1, 1},
                                              {Elem::kI8, 2},
                                              {Elem::kI16, 3},
                                              {Elem::kI32, 4},
                                              {Elem::kI64, 5},
                                              {Elem::kU8, 6},
                                              {Elem::kU16, 7},
                                              {Elem::kU32, 8},
                                              {Elem::kU64, 9},
                                              {Elem::kF32, 11},
                                              {Elem::kF64, 12},
                                              {Elem::kComplex64, 15},
                                              {Elem::kBf16, 16}});
constexpr uint64_t kTupleType = 13;

std::vector<int64_t> numbers(const Field& field) {
  std::vector<int64_t> all;
  if (field.wire == kVarint) {
    all.push_back(static_cast<int64_t>(field.value));
  }
  for (Reader reader(field.bytes); field.wire == kBytes && !reader.done();) {
    all.push_back(static_cast<int64_t>(reader.varint()));
  }
  return all;
}

// The cores of an iota list: 0 .. n-1 as an array of `dims`, transposed, row by row.
std::vector<int64_t> iota_cores(const std::vector<int64_t>& dims,
                                const std::vector<int64_t>& order) {
  if (order.size() != dims.size()) {
    throw_invalid("sharding: iota_transpose_perm and iota_reshape_dims must have the same length");
  }
  std::vector<int64_t> strides(dims.size(), 1), turned, steps;
  for (size_t d = dims.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * dims[d];
  }
  for (const int64_t d : order) {
    turned.push_back(dims.at(static_cast<size_t>(d)));
    steps.push_back(strides.at(static_cast<size_t>(d)));
  }
  const int64_t count = std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
  std::vector<int64_t> cores;
  for (int64_t place = 0; place < count; ++place) {
    int64_t core = 0, rest = place;
    for (size_t d = turned.size(); d-- > 0; rest /= turned[d]) {
      core += rest % turned[d] * steps[d];
    }
    cores.push_back(core);
  }
  return cores;
}

}  // namespace

std::string op_sharding(const TileList& list) {
  std::string bytes;
  if (list.tiles.empty()) {
    return bytes;
  }
  put_number(bytes, 1, kOther);
  put_bytes(bytes, 3, packed(list.tiles));
  put_bytes(bytes, 4, packed(list.cores));
  if (list.copies) {
    put_number(bytes, 6, 1);
  }
  return bytes;
}

TileList read_op_sharding(std::string_view bytes) {
  uint64_t type = kReplicated;
  TileList list;
  std::vector<int64_t> dims, order;
  bool only_copies = true;
  Reader reader(bytes);
  while (const auto field = reader.next()) {
    switch (field->number) {
      case 1:
        type = field->value;
        break;
      case 3:
        list.tiles = numbers(*field);
        break;
      case 4:
        list.cores = numbers(*field);
        break;
      case 6:
        list.copies = field->value != 0;
        break;
      case 8:  // what the last dimensions of the tiles count
        for (const int64_t each : numbers(*field)) {
          only_copies = only_copies && each == kReplicated;
          list.copies = true;
        }
        break;
      case 9:
        dims = numbers(*field);
        break;
      case 10:
        order = numbers(*field);
        break;
      default:
        break;
    }
  }
  if (type == kReplicated) {
    return {};
  }
  if (type != kOther || !only_copies) {
    throw_unimplemented("a sharding that is neither replicated nor a list of tiles");
  }
  if (!dims.empty()) {
    list.cores = iota_cores(dims, order);
  }
  return list;
}

std::string tuple_sharding(const std::vector<std::string>& shardings) {
  std::string bytes;
  put_number(bytes, 1, kTuple);
  for (const std::string& each : shardings) {
    put_bytes(bytes, 5, each);
  }
  return bytes;
}

std::vector<TileList> read_tuple_sharding(std::string_view bytes) {
  std::vector<TileList> all;
  Reader reader(bytes);
  while (const auto field = reader.next()) {
    if (field->number == 5) {
      all.push_back(read_op_sharding(field->bytes));
    }
  }
  return all;
}

std::string shape_proto(const compiler::Type& type) {
  uint64_t primitive = 0;
  for (const auto& [elem, number] : kPrimitiveTypes) {
    primitive = elem == type.elem ? number : primitive;
  }
  std::string bytes;
  put_number(bytes, 2, primitive);
  if (!type.dims.empty()) {
    put_bytes(bytes, 3, packed(type.dims));
    put_bytes(bytes, 6, std::string(type.dims.size(), 0));  // none is dynamic
  }
  return bytes;
}

std::string tuple_shape(const std::vector<std::string>& shapes) {
  std::string bytes;
  put_number(bytes, 2, kTupleType);
  for (const std::string& shape : shapes) {
    put_bytes(bytes, 4, shape);
  }
  return bytes;
}

}  // namespace tpu::pjrt
