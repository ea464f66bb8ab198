// Conversion to what a program takes is the dataset's.
#include "loop/example_arrays.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "files/npy.hpp"
#include "input/array_source.hpp"
#include "input/records/record_source.hpp"
#include "src/memory/host_room.hpp"
#include "tpu/error.hpp"

namespace tpu::training {

using driver::DType;
using driver::Error;
using driver::ErrorCode;
using driver::HostArray;
using driver::ParameterInfo;
using driver::Shape;

namespace {

[[noreturn]] void refuse_file(const std::string& text) {
  throw Error(ErrorCode::kInvalidArgument, text);
}

// The array or tensor `member` of a file that holds several; of the input's name when it is empty.
HostArray read_member(const InputConfig& input) {
  const input::Feature feature{.name = input.name};
  const input::Column column = input::open_column(input.file, input.member, feature);
  if (!column.view.strides.empty()) {
    refuse_file(fmt::format("{}: the array is not in C order", column.name));
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
    refuse_file(fmt::format("{}: {} bytes are not a whole number of examples of {} bytes",
                            input.file, array.bytes.size(), values));
  }
  array.shape = {static_cast<int64_t>(array.bytes.size() / values), static_cast<int64_t>(values)};
  return array;
}

std::vector<HostArray> read_records(const TrainConfig& config,
                                    const std::vector<ParameterInfo>& infos) {
  std::vector<input::Feature> features;
  for (size_t i = 0; i < config.inputs.size(); ++i) {
    features.push_back({.name = config.inputs[i].name,
                        .type = infos[i].dtype,
                        .shape = Shape(infos[i].shape.begin() + 1, infos[i].shape.end())});
  }
  const auto source = input::record_source(input::find_files(config.records), features);
  const auto reader = source->reader();
  std::vector<input::Value> values(features.size());
  std::vector<HostArray> arrays;
  for (uint64_t example = 0; example < source->examples(); ++example) {
    try {
      reader->read(example, values);
    } catch (const input::BadExample& error) {
      refuse_file(fmt::format("{}: {}", source->place(example), error.what()));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const uint64_t count = driver::element_count(features[i].shape);
      if (values[i].bytes.size() != count * driver::dtype_bytes(values[i].type)) {
        refuse_file(fmt::format(
            "{}: feature {} has {} values, the program wants {}", source->place(example),
            features[i].name, values[i].bytes.size() / driver::dtype_bytes(values[i].type), count));
      }
      if (example == 0) {
        const Shape shape = {static_cast<int64_t>(source->examples()), static_cast<int64_t>(count)};
        arrays.push_back(driver::host_array(values[i].type, shape, features[i].name));
      } else if (values[i].type != arrays[i].dtype) {
        refuse_file(fmt::format("{}: feature {} is {}, that of the first record {}",
                                source->place(example), features[i].name,
                                driver::dtype_name(values[i].type),
                                driver::dtype_name(arrays[i].dtype)));
      }
      std::memcpy(arrays[i].bytes.data() + example * values[i].bytes.size(), values[i].bytes.data(),
                  values[i].bytes.size());
    }
  }
  return arrays;
}

}  // namespace tpu::training
