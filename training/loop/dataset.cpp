// Conversion follows docs/host_driver.md, "Data and order of examples".
#include "loop/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "files/checked.hpp"
#include "files/digest.hpp"
#include "loop/example_arrays.hpp"
#include "numbers/bf16.hpp"
#include "numbers/random.hpp"
#include "src/memory/host_room.hpp"
#include "tpu/error.hpp"

namespace tpu::training {

using driver::checked_product;
using driver::Digest;
using driver::DType;
using driver::dtype_bytes;
using driver::dtype_name;
using driver::element_count;
using driver::Error;
using driver::ErrorCode;
using driver::host_array;
using driver::HostArray;
using driver::ParameterInfo;
using driver::Shape;
using driver::type_text;

namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw Error(ErrorCode::kInvalidArgument, text);
}

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

// A number of integers as `to` holds it, which check_numbers() has looked at.
void put_integer(const HostArray& from, size_t index, DType type, std::byte* to) {
  const uint64_t value = from.dtype == DType::kU64 ? element<uint64_t>(from, index)
                                                   : static_cast<uint64_t>(integer(from, index));
  std::memcpy(to, &value, dtype_bytes(type));  // little-endian
}

void put_float(float value, DType type, std::byte* to) {
  if (type == DType::kF32) {
    std::memcpy(to, &value, sizeof(value));
  } else {
    const uint16_t half = bf16_from_f32(value);
    std::memcpy(to, &half, sizeof(half));
  }
}

}  // namespace

Dataset::Dataset(const TrainConfig& config, const std::vector<ParameterInfo>& infos)
    : split_seed_(config.split_seed) {
  for (size_t i = 0; i < config.inputs.size(); ++i) {
    check_values(config.inputs[i], infos[i]);
  }
  std::vector<HostArray> records;
  if (!config.records.empty()) {
    records = read_records(config, infos);
  }
  for (size_t i = 0; i < config.inputs.size(); ++i) {
    const InputConfig& input = config.inputs[i];
    add_column(input, infos[i],
               records.empty() ? read_array(input, values_of(infos[i])) : std::move(records[i]));
    check(i, infos[i]);
  }
  for (size_t i = 0; i < columns_.size(); ++i) {
    check_numbers(columns_[i], infos[i]);
  }
  if (config.eval_count >= examples_) {
    refuse(fmt::format("data.eval_count = {} leaves no example of {} for training",
                       config.eval_count, examples_));
  }
  const auto order = permutation(RandomStream(split_seed_, RandomPurpose::kSplit, 0), examples_);
  const auto cut = order.end() - static_cast<ptrdiff_t>(config.eval_count);
  train_.assign(order.begin(), cut);
  eval_.assign(cut, order.end());
}

void Dataset::add_column(const InputConfig& config, const ParameterInfo& info, HostArray array) {
  const uint64_t values = values_of(info);
  if (array.shape.empty()) {
    refuse(fmt::format("{}: a scalar is no set of {}", config.file, config.name));
  }
  const uint64_t all = element_count(array.shape);
  if (config.numbers && !columns_.empty() && all != examples_) {
    refuse(fmt::format("{}: {} {} for {} {}", config.file, all, config.name, examples_,
                       columns_[0].config.name));
  }
  const uint64_t examples = config.numbers ? all : static_cast<uint64_t>(array.shape[0]);
  if (checked_product(examples, values) != all) {
    refuse(fmt::format("{}: {} does not hold examples of {} values, as the program's {} wants",
                       config.file, type_text(array.dtype, array.shape), values,
                       type_text(info.dtype, info.shape)));
  }
  if (examples == 0 || examples > std::numeric_limits<uint32_t>::max()) {
    refuse(fmt::format("{}: {} examples; 1 to 2^32 - 1 are expected", config.file, examples));
  }
  if (!columns_.empty() && examples != examples_) {
    refuse(fmt::format("{}: {} examples of {}, but {} of {}", config.file, examples, config.name,
                       examples_, columns_[0].config.name));
  }
  examples_ = examples;
  columns_.push_back({config, std::move(array), values});
}

void Dataset::check(size_t input, const ParameterInfo& info) const {
  const Column& column = columns_[input];
  const Shape one(info.shape.begin() + 1, info.shape.end());
  if (element_count(one) != column.values) {
    refuse(fmt::format("{}: examples of {} values are not what {} wants", column.config.file,
                       column.values, type_text(info.dtype, info.shape)));
  }
  const DType from = column.array.dtype;
  const bool to_float = (from == DType::kU8 || from == DType::kF32) && is_float(info.dtype);
  const bool to_integer = is_integer(from) && is_integer(info.dtype) && info.dtype != DType::kI1;
  if (column.config.numbers && !is_integer(from)) {
    refuse(fmt::format("{}: {} must be integers, not {}", column.config.file, column.config.name,
                       dtype_name(from)));
  }
  if (from != info.dtype && !to_float && !to_integer) {
    refuse(fmt::format("{}: {} cannot become the program's {}", column.config.file,
                       dtype_name(from), dtype_name(info.dtype)));
  }
}

// Integers that the program's type cannot hold, or that are none of the classes. A one-hot code
// made from a number that is no class is all zeros: the example would be lost.
void Dataset::check_numbers(const Column& column, const ParameterInfo& info) const {
  const HostArray& array = column.array;
  const int64_t classes = column.config.classes;
  if (!is_integer(array.dtype) || !is_integer(info.dtype) ||
      (classes == 0 && !column.config.numbers && array.dtype == info.dtype)) {
    return;
  }
  int64_t low = 0;
  int64_t high = classes - 1;
  bool wide = false;  // u64: everything that is not negative
  if (classes == 0) {
    with_integer(info.dtype, [&](auto type) {
      using Type = decltype(type);
      low = column.config.numbers ? 0 : static_cast<int64_t>(std::numeric_limits<Type>::min());
      wide = std::is_same_v<Type, uint64_t>;
      high = wide ? std::numeric_limits<int64_t>::max()
                  : static_cast<int64_t>(std::numeric_limits<Type>::max());
    });
  }
  const uint64_t count = examples_ * column.values;
  for (uint64_t i = 0; i < count; ++i) {
    const int64_t number = integer(array, i);
    const bool too_large =
        array.dtype == DType::kU64 && !wide && !std::in_range<int64_t>(element<uint64_t>(array, i));
    if (number >= low && number <= high && !too_large) {
      continue;
    }
    const std::string where =
        column.config.numbers
            ? fmt::format("label {} of example {}", integer_text(array, i), i)
            : fmt::format("{} {} of example {}, value {},", column.config.name,
                          integer_text(array, i), i / column.values, i % column.values);
    refuse(too_large ? fmt::format("{}: {} is too large", column.config.file, where)
           : classes > 0
               ? fmt::format("{}: {} is none of the {} classes, 0 to {} ({})", column.config.file,
                             where, classes, high, column.config.classes_from)
           : column.config.numbers
               ? fmt::format("{}: {} is no class number, 0 to {}", column.config.file, where, high)
               : fmt::format("{}: {} does not fit into the program's {}, {} to {}",
                             column.config.file, where, dtype_name(info.dtype), low, high));
  }
}

std::string Dataset::digest() const {
  Digest digest;
  for (const Column& column : columns_) {
    digest.add(column.array);
  }
  return digest.finish();
}

std::pair<int64_t, int64_t> Dataset::range(size_t input) const {
  const Column& column = columns_[input];
  std::pair<int64_t, int64_t> found{std::numeric_limits<int64_t>::max(),
                                    std::numeric_limits<int64_t>::min()};
  for (uint64_t i = 0; i < examples_ * column.values; ++i) {
    const int64_t number = integer(column.array, i);
    found = {std::min(found.first, number), std::max(found.second, number)};
  }
  return found;
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

HostArray Dataset::batch(size_t input, const ParameterInfo& info,
                         const std::vector<uint32_t>& order, size_t first, size_t count) const {
  const Column& column = columns_[input];
  const HostArray& array = column.array;
  HostArray batch = host_array(info.dtype, info.shape, column.config.name);
  const uint64_t size = dtype_bytes(info.dtype);
  const auto divide = static_cast<float>(column.config.divide);
  for (size_t row = 0; row < count; ++row) {
    const size_t from = order[first + row] * column.values;
    std::byte* to = batch.bytes.data() + row * column.values * size;
    if (array.dtype == info.dtype) {
      std::memcpy(to, array.bytes.data() + from * size, column.values * size);
      continue;
    }
    for (size_t i = 0; i < column.values; ++i, to += size) {
      if (!is_float(info.dtype)) {
        put_integer(array, from + i, info.dtype, to);
      } else if (array.dtype == DType::kU8) {
        put_float(static_cast<float>(element<uint8_t>(array, from + i)) / divide, info.dtype, to);
      } else {
        put_float(element<float>(array, from + i), info.dtype, to);
      }
    }
  }
  return batch;
}

}  // namespace tpu::training
