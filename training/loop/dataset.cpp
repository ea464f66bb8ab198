// Conversion follows docs/host_driver.md, "Data and order of examples".
#include "loop/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "files/checked.hpp"
#include "files/npy.hpp"
#include "numbers/bf16.hpp"
#include "numbers/random.hpp"
#include "src/memory/host_room.hpp"
#include "tpu/error.hpp"

namespace tpu::training {

using driver::checked_product;
using driver::DType;
using driver::dtype_bytes;
using driver::dtype_name;
using driver::element_count;
using driver::Error;
using driver::ErrorCode;
using driver::host_array;
using driver::HostArray;
using driver::ParameterInfo;
using driver::read_file;
using driver::read_npy;
using driver::Shape;
using driver::type_text;
namespace {

constexpr float kPixelMax = 255.0f;

[[noreturn]] void refuse(const std::string& text) {
  throw Error(ErrorCode::kInvalidArgument, text);
}

// Files that are not .npy hold raw u8.
HostArray read_data(const std::string& path, uint64_t bytes_an_example) {
  if (path.ends_with(".npy")) {
    return read_npy(path);
  }
  HostArray array{DType::kU8, {}, read_file(path)};
  if (array.bytes.size() % bytes_an_example != 0) {
    refuse(fmt::format("{}: {} bytes are not a whole number of examples of {} bytes", path,
                       array.bytes.size(), bytes_an_example));
  }
  array.shape = {static_cast<int64_t>(array.bytes.size() / bytes_an_example),
                 static_cast<int64_t>(bytes_an_example)};
  return array;
}

template <typename Number>
Number element(const HostArray& array, size_t index) {
  Number value;
  std::memcpy(&value, array.bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

int64_t integer(const HostArray& array, size_t index, const std::string& path) {
  switch (array.dtype) {
    case DType::kU8:
      return element<uint8_t>(array, index);
    case DType::kI8:
      return element<int8_t>(array, index);
    case DType::kI16:
      return element<int16_t>(array, index);
    case DType::kU16:
      return element<uint16_t>(array, index);
    case DType::kI32:
      return element<int32_t>(array, index);
    case DType::kU32:
      return element<uint32_t>(array, index);
    case DType::kI64:
      return element<int64_t>(array, index);
    case DType::kU64: {
      const auto value = element<uint64_t>(array, index);
      if (!std::in_range<int64_t>(value)) {
        refuse(fmt::format("{}: label {} of example {} is too large", path, value, index));
      }
      return static_cast<int64_t>(value);
    }
    default:
      refuse(fmt::format("{}: labels must be integers, not {}", path, dtype_name(array.dtype)));
  }
}

}  // namespace

Dataset::Dataset(const TrainConfig& config, const ParameterInfo& images)
    : split_seed_(config.split_seed) {
  read_images(config, images);
  check_images(images, config.images);
  read_labels(config);
  const size_t examples = labels_.size();
  if (config.eval_count >= examples) {
    refuse(fmt::format("data.eval_count = {} leaves no example of {} for training",
                       config.eval_count, examples));
  }
  const auto order = permutation(RandomStream(split_seed_, RandomPurpose::kSplit, 0), examples);
  const auto cut = order.end() - static_cast<ptrdiff_t>(config.eval_count);
  train_.assign(order.begin(), cut);
  eval_.assign(cut, order.end());
}

void Dataset::read_images(const TrainConfig& config, const ParameterInfo& images) {
  const Shape one(images.shape.begin() + 1, images.shape.end());
  const uint64_t pixels = element_count(one);
  if (pixels == 0) {
    refuse(fmt::format("the program's images, {}, have no values",
                       type_text(images.dtype, images.shape)));
  }
  images_ = read_data(config.images, pixels);
  if (images_.shape.empty()) {
    refuse(fmt::format("{}: a scalar is no set of images", config.images));
  }
  const auto examples = static_cast<uint64_t>(images_.shape[0]);
  if (checked_product(examples, pixels) != element_count(images_.shape)) {
    refuse(fmt::format("{}: {} does not hold examples of {} values, as the program's {} wants",
                       config.images, type_text(images_.dtype, images_.shape), pixels,
                       type_text(images.dtype, images.shape)));
  }
  if (examples == 0 || examples > std::numeric_limits<uint32_t>::max()) {
    refuse(fmt::format("{}: {} examples; 1 to 2^32 - 1 are expected", config.images, examples));
  }
  pixels_ = pixels;
}

void Dataset::check_images(const ParameterInfo& images, const std::string& path) const {
  const Shape one(images.shape.begin() + 1, images.shape.end());
  if (element_count(one) != pixels_) {
    refuse(fmt::format("{}: examples of {} values are not what {} wants", path, pixels_,
                       type_text(images.dtype, images.shape)));
  }
  const bool convertible = images_.dtype == DType::kU8 || images_.dtype == DType::kF32;
  const bool wants_float = images.dtype == DType::kF32 || images.dtype == DType::kBf16;
  if (images_.dtype != images.dtype && !(convertible && wants_float)) {
    refuse(fmt::format("{}: {} cannot become the program's {}", path, dtype_name(images_.dtype),
                       dtype_name(images.dtype)));
  }
}

void Dataset::read_labels(const TrainConfig& config) {
  const auto examples = static_cast<uint64_t>(images_.shape[0]);
  const HostArray labels = read_data(config.labels, 1);
  if (element_count(labels.shape) != examples) {
    refuse(fmt::format("{}: {} labels for {} images", config.labels, element_count(labels.shape),
                       examples));
  }
  // A one-hot code made from a label that is no class is all zeros: the example would be lost.
  const int64_t most =
      config.classes > 0 ? config.classes - 1 : std::numeric_limits<int32_t>::max();
  for (size_t i = 0; i < examples; ++i) {
    const int64_t label = integer(labels, i, config.labels);
    if (label < 0 || label > most) {
      refuse(config.classes > 0
                 ? fmt::format("{}: label {} of example {} is none of the {} classes, 0 to {} "
                               "({})",
                               config.labels, label, i, config.classes, most, config.classes_from)
                 : fmt::format("{}: label {} of example {} is no class number, 0 to {}",
                               config.labels, label, i, most));
    }
    labels_.push_back(static_cast<int32_t>(label));
  }
}

std::pair<int32_t, int32_t> Dataset::label_range() const {
  const auto [low, high] = std::minmax_element(labels_.begin(), labels_.end());
  return {*low, *high};
}

std::vector<uint32_t> Dataset::epoch_order(uint32_t epoch) const {
  std::vector<uint32_t> order;
  order.reserve(train_.size());
  for (const uint32_t place :
       permutation(RandomStream(split_seed_, RandomPurpose::kEpoch, epoch), train_.size())) {
    order.push_back(train_[place]);
  }
  return order;
}

HostArray Dataset::image_batch(const ParameterInfo& info, const std::vector<uint32_t>& order,
                               size_t first, size_t count) const {
  HostArray batch = host_array(info.dtype, info.shape, "images");
  const uint64_t element_size = dtype_bytes(info.dtype);
  const uint64_t pixels = element_count(info.shape) / static_cast<uint64_t>(info.shape[0]);
  for (size_t row = 0; row < count; ++row) {
    const size_t from = order[first + row] * pixels;
    std::byte* to = batch.bytes.data() + row * pixels * element_size;
    if (images_.dtype == info.dtype) {
      std::memcpy(to, images_.bytes.data() + from * element_size, pixels * element_size);
      continue;
    }
    for (size_t i = 0; i < pixels; ++i) {
      const float value = images_.dtype == DType::kU8
                              ? static_cast<float>(element<uint8_t>(images_, from + i)) / kPixelMax
                              : element<float>(images_, from + i);
      if (info.dtype == DType::kF32) {
        std::memcpy(to + i * sizeof(value), &value, sizeof(value));
      } else {
        const uint16_t half = bf16_from_f32(value);
        std::memcpy(to + i * sizeof(half), &half, sizeof(half));
      }
    }
  }
  return batch;
}

HostArray Dataset::label_batch(const ParameterInfo& info, const std::vector<uint32_t>& order,
                               size_t first, size_t count) const {
  std::vector<int32_t> labels(static_cast<size_t>(info.shape[0]));
  for (size_t row = 0; row < count; ++row) {
    labels[row] = labels_[order[first + row]];
  }
  HostArray batch{DType::kI32, info.shape, {}};
  const auto bytes = std::as_bytes(std::span(labels));
  batch.bytes.assign(bytes.begin(), bytes.end());
  return batch;
}

}  // namespace tpu::training
