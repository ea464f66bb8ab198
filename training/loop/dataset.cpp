// Which conversions there are follows docs/training.md, "Data and order of examples".
#include "loop/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "check/checked.hpp"
#include "check/refuse.hpp"
#include "format/digest.hpp"
#include "input/array_source.hpp"
#include "input/records/record_source.hpp"
#include "loop/example_arrays.hpp"
#include "numbers/random.hpp"

namespace tpu::training {

using driver::checked_product;
using driver::Digest;
using driver::DType;
using driver::dtype_bytes;
using driver::dtype_name;
using driver::element_count;
using driver::HostArray;
using driver::ParameterInfo;
using driver::refuse;
using driver::Shape;
using driver::type_text;

namespace {

// Calls `use` with a value of the C++ type of an integer dtype; false for other dtypes.
template <typename Use>
bool with_integer(DType dtype, Use use) {
  switch (dtype) {
    case DType::kU8:
    case DType::kI1:
      use(uint8_t{});
      return true;
    case DType::kI8:
      use(int8_t{});
      return true;
    case DType::kI16:
      use(int16_t{});
      return true;
    case DType::kU16:
      use(uint16_t{});
      return true;
    case DType::kI32:
      use(int32_t{});
      return true;
    case DType::kU32:
      use(uint32_t{});
      return true;
    case DType::kI64:
      use(int64_t{});
      return true;
    case DType::kU64:
      use(uint64_t{});
      return true;
    default:
      return false;
  }
}

bool is_integer(DType dtype) {
  return with_integer(dtype, [](auto) {});
}

bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBf16; }

template <typename Number>
Number element(const HostArray& array, size_t index) {
  Number value;
  std::memcpy(&value, array.bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

// What fits into an i64; larger ones are the largest, which no other type than u64 holds.
int64_t integer(const HostArray& array, size_t index) {
  int64_t value = 0;
  with_integer(array.dtype, [&](auto type) {
    const auto number = element<decltype(type)>(array, index);
    value = std::in_range<int64_t>(number) ? static_cast<int64_t>(number)
                                           : std::numeric_limits<int64_t>::max();
  });
  return value;
}

// Of one example.
uint64_t values_of(const ParameterInfo& info) {
  return element_count(Shape(info.shape.begin() + 1, info.shape.end()));
}

void check_values(const InputConfig& input, const ParameterInfo& info) {
  if (values_of(info) == 0) {
    refuse(fmt::format("the program's {}, {}, have no values", input.name,
                       type_text(info.dtype, info.shape)));
  }
}

std::string integer_text(const HostArray& array, size_t index) {
  return array.dtype == DType::kU64 ? fmt::format("{}", element<uint64_t>(array, index))
                                    : fmt::format("{}", integer(array, index));
}

}  // namespace

Dataset::Dataset(const TrainConfig& config, std::vector<ParameterInfo> infos)
    : config_(config), infos_(std::move(infos)), split_seed_(config.split_seed) {
  for (size_t i = 0; i < config.inputs.size(); ++i) {
    check_values(config.inputs[i], infos_[i]);
  }
  if (config.records.empty()) {
    open_arrays();
  } else {
    open_records();
  }
  if (config.eval_count >= examples_) {
    refuse(fmt::format("data.eval_count = {} leaves no example of {} for training",
                       config.eval_count, examples_));
  }
  const auto order = permutation(RandomStream(split_seed_, RandomPurpose::kSplit, 0), examples_);
  const auto cut = order.end() - static_cast<ptrdiff_t>(config.eval_count);
  train_.assign(order.begin(), cut);
  eval_.assign(cut, order.end());
  if (config.shuffle) {
    std::sort(train_.begin(), train_.end());  // a buffer moves along the files
  }
}

// Of an example as its file has it.
uint64_t Dataset::stored_values(size_t input, const ParameterInfo& info) const {
  const Shape& stored = config_.inputs[input].stored_shape;
  return stored.empty() ? values_of(info) : element_count(stored);
}

void Dataset::open_arrays() {
  std::vector<input::Column> columns;
  for (size_t i = 0; i < infos_.size(); ++i) {
    const InputConfig& input = config_.inputs[i];
    const uint64_t values = stored_values(i, infos_[i]);
    add_column(input, values, read_array(input, values));
    const HostArray& array = *columns_[i].array;
    stored_.push_back(array.dtype);
    check(i, infos_[i]);
    const Shape shape = {static_cast<int64_t>(examples_), static_cast<int64_t>(values)};
    columns.push_back(
        {input.file, columns_[i].array, driver::HostView(array.dtype, shape, array.bytes)});
  }
  for (size_t i = 0; i < infos_.size(); ++i) {
    check_numbers(i);
  }
  source_ = input::array_source(std::move(columns));
}

// The first record says how the features are stored; the others must be like it.
void Dataset::open_records() {
  std::vector<input::Feature> features;
  for (const InputConfig& input : config_.inputs) {
    features.push_back({.name = input.name});
  }
  source_ =
      input::record_source(input::find_files(config_.records), features,
                           {.threads = config_.input_threads, .interleave = config_.interleave});
  examples_ = source_->examples();
  const std::unique_ptr<input::Reader> reader = source_->reader();
  std::vector<input::Value> values(features.size());
  try {
    reader->read(0, values);
  } catch (const input::BadExample& error) {
    refuse(fmt::format("{}: {}", source_->place(0), error.what()));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    stored_.push_back(values[i].type);
    const uint64_t count = values[i].bytes.size() / dtype_bytes(values[i].type);
    const uint64_t wanted = stored_values(i, infos_[i]);
    if (count != wanted) {
      refuse(fmt::format("{}: feature '{}' has {} values; {} are wanted, for the program's {}",
                         source_->place(0), features[i].name, count, wanted,
                         type_text(infos_[i].dtype, infos_[i].shape)));
    }
    check(i, infos_[i]);
  }
}

void Dataset::add_column(const InputConfig& input, uint64_t values, HostArray array) {
  if (array.shape.empty()) {
    refuse(fmt::format("{}: found a scalar, expected an array of {}", input.file, input.name));
  }
  const uint64_t all = element_count(array.shape);
  if (input.numbers && !columns_.empty() && all != examples_) {
    refuse(fmt::format("{}: {} {} for {} {}", input.file, all, input.name, examples_,
                       config_.inputs[0].name));
  }
  const uint64_t examples = input.numbers ? all : static_cast<uint64_t>(array.shape[0]);
  if (checked_product(examples, values) != all) {
    const ParameterInfo& info = infos_[columns_.size()];
    refuse(fmt::format("{}: {} does not hold examples of {} values, as the program's {} wants",
                       input.file, type_text(array.dtype, array.shape), values,
                       type_text(info.dtype, info.shape)));
  }
  if (examples == 0 || examples > std::numeric_limits<uint32_t>::max()) {
    refuse(fmt::format("{}: {} examples; 1 to 2^32 - 1 are expected", input.file, examples));
  }
  if (!columns_.empty() && examples != examples_) {
    refuse(fmt::format("{}: {} examples of {}, but {} of {}", input.file, examples, input.name,
                       examples_, config_.inputs[0].name));
  }
  examples_ = examples;
  columns_.push_back({std::make_shared<const HostArray>(std::move(array)), values});
}

void Dataset::check(size_t input, const ParameterInfo& info) const {
  const InputConfig& config = config_.inputs[input];
  if (values_of(info) != values_of(infos_[input])) {
    refuse(fmt::format("{}: examples of {} values are not what {} wants", config.file,
                       values_of(infos_[input]), type_text(info.dtype, info.shape)));
  }
  const DType from = stored_[input];
  const bool to_float = (from == DType::kU8 || from == DType::kF32) && is_float(info.dtype);
  const bool to_integer = is_integer(from) && is_integer(info.dtype) && info.dtype != DType::kI1;
  if (config.numbers && !is_integer(from)) {
    refuse(
        fmt::format("{}: {} must be integers, not {}", config.file, config.name, dtype_name(from)));
  }
  if (from != info.dtype && !to_float && !to_integer) {
    refuse(fmt::format("{}: {} cannot be converted to the program's {}", config.file,
                       dtype_name(from), dtype_name(info.dtype)));
  }
  (void)input::Converter(feature(input, info, true), input);  // a cut that makes no sense
}

input::Feature Dataset::feature(size_t input, const ParameterInfo& info, bool augment) const {
  const InputConfig& config = config_.inputs[input];
  input::Feature made{.name = config.name,
                      .type = info.dtype,
                      .shape = Shape(info.shape.begin() + 1, info.shape.end()),
                      .expected_type = stored_[input],
                      .stored_shape = config.stored_shape,
                      .crop_padding = config.crop_padding,
                      .flip = config.flip,
                      .augment = augment};
  if (stored_[input] == DType::kU8 && is_float(info.dtype)) {
    made.divide = static_cast<float>(config.divide);
  }
  if (columns_.empty() && config.classes > 0 && !is_float(info.dtype)) {
    made.range = {0, config.classes - 1};  // of arrays they have been looked at
  }
  return made;
}

input::OrderOptions Dataset::train_order() const {
  input::OrderOptions order{.seed = split_seed_,
                            .shuffle = config_.shuffle.value_or(input::kShuffleAll)};
  if (!config_.shuffle || !eval_.empty()) {
    order.examples = train_;
  }
  return order;
}

std::unique_ptr<input::BatchPipeline> Dataset::training(int64_t batch, int64_t epochs) const {
  std::vector<input::Feature> features;
  for (size_t i = 0; i < infos_.size(); ++i) {
    features.push_back(feature(i, infos_[i], true));
  }
  return std::make_unique<input::BatchPipeline>(
      source_, std::move(features),
      input::PipelineOptions{.batch = static_cast<uint64_t>(batch),
                             .epochs = static_cast<uint64_t>(epochs),
                             .order = train_order(),
                             .threads = config_.input_threads,
                             .prefetch = config_.prefetch});
}

std::unique_ptr<input::BatchPipeline> Dataset::evaluation(const std::vector<ParameterInfo>& infos,
                                                          int64_t batch) const {
  std::vector<input::Feature> features;
  for (size_t i = 0; i < infos.size(); ++i) {
    features.push_back(feature(i, infos[i], false));
  }
  return std::make_unique<input::BatchPipeline>(
      source_, std::move(features),
      input::PipelineOptions{.batch = static_cast<uint64_t>(batch),
                             .remainder = input::Remainder::kPad,
                             .epochs = 1,
                             .order = {.examples = eval_},
                             .threads = config_.input_threads,
                             .prefetch = config_.prefetch});
}

// Integers that the program's type cannot hold, or that are none of the classes. A one-hot code
// made from a number that is no class is all zeros: the example would be lost.
void Dataset::check_numbers(size_t input) const {
  const InputConfig& config = config_.inputs[input];
  const ParameterInfo& info = infos_[input];
  const HostArray& array = *columns_[input].array;
  const uint64_t values = columns_[input].values;
  const int64_t classes = config.classes;
  if (!is_integer(array.dtype) || !is_integer(info.dtype) ||
      (classes == 0 && !config.numbers && array.dtype == info.dtype)) {
    return;
  }
  int64_t low = 0;
  int64_t high = classes - 1;
  bool wide = false;  // u64: everything that is not negative
  if (classes == 0) {
    with_integer(info.dtype, [&](auto type) {
      using Type = decltype(type);
      low = config.numbers ? 0 : static_cast<int64_t>(std::numeric_limits<Type>::min());
      wide = std::is_same_v<Type, uint64_t>;
      high = wide ? std::numeric_limits<int64_t>::max()
                  : static_cast<int64_t>(std::numeric_limits<Type>::max());
    });
  }
  const uint64_t count = examples_ * values;
  for (uint64_t i = 0; i < count; ++i) {
    const int64_t number = integer(array, i);
    const bool too_large =
        array.dtype == DType::kU64 && !wide && !std::in_range<int64_t>(element<uint64_t>(array, i));
    if (number >= low && number <= high && !too_large) {
      continue;
    }
    const std::string where = config.numbers
                                  ? fmt::format("label {} of example {}", integer_text(array, i), i)
                                  : fmt::format("{} {} of example {}, value {},", config.name,
                                                integer_text(array, i), i / values, i % values);
    refuse(too_large     ? fmt::format("{}: {} is too large", config.file, where)
           : classes > 0 ? fmt::format("{}: {} is outside of the {} classes, 0 to {} ({})",
                                       config.file, where, classes, high, config.classes_from)
           : config.numbers
               ? fmt::format("{}: {} is not a class number, 0 to {}", config.file, where, high)
               : fmt::format("{}: {} does not fit into the program's {}, {} to {}", config.file,
                             where, dtype_name(info.dtype), low, high));
  }
}

std::string Dataset::digest() const {
  Digest digest;
  for (const Column& column : columns_) {
    digest.add(*column.array);
  }
  if (columns_.empty()) {
    const std::string identity = source_->identity();
    digest.add_bytes(std::as_bytes(std::span(identity)));
  }
  return digest.finish();
}

std::pair<int64_t, int64_t> Dataset::range(size_t input) const {
  const Column& column = columns_[input];
  std::pair<int64_t, int64_t> found{std::numeric_limits<int64_t>::max(),
                                    std::numeric_limits<int64_t>::min()};
  for (uint64_t i = 0; i < examples_ * column.values; ++i) {
    const int64_t number = integer(*column.array, i);
    found = {std::min(found.first, number), std::max(found.second, number)};
  }
  return found;
}

}  // namespace tpu::training
