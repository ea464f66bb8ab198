// Conversion to what a program takes is the dataset's.
#include "loop/example_arrays.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "check/host_room.hpp"
#include "check/refuse.hpp"
#include "format/npy.hpp"
#include "input/array_source.hpp"

namespace tpu::training {

using driver::DType;
using driver::HostArray;
using driver::refuse;

namespace {

// The array or tensor `member` of a file that holds several; of the input's name when it is empty.
HostArray read_member(const InputConfig& input) {
  const input::Feature feature{.name = input.name};
  const input::Column column = input::open_column(input.file, input.member, feature);
  if (!column.view.strides.empty()) {
    refuse(fmt::format("{}: the array is not in C order", column.name));
  }
  HostArray array = driver::host_array(column.view.dtype, column.view.shape, column.name);
  std::memcpy(array.bytes.data(), column.view.bytes.data(), array.bytes.size());
  return array;
}

}  // namespace

HostArray read_array(const InputConfig& input, uint64_t values) {
  if (input.file.ends_with(".npz") || input.file.ends_with(".safetensors")) {
    return read_member(input);
  }
  if (input.file.ends_with(".npy")) {
    return driver::read_npy(input.file);
  }
  HostArray array{DType::kU8, {}, driver::read_file(input.file)};
  if (array.bytes.size() % values != 0) {
    refuse(fmt::format("{}: {} bytes are not a multiple of {} bytes, the size of an example",
                       input.file, array.bytes.size(), values));
  }
  array.shape = {static_cast<int64_t>(array.bytes.size() / values), static_cast<int64_t>(values)};
  return array;
}

}  // namespace tpu::training
