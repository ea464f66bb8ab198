#include "input/convert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "numbers/bf16.hpp"
#include "numbers/random.hpp"
#include "tpu/error.hpp"

namespace tpu::input {
namespace {

// bf16 by another name than u16.
struct Half {
  uint16_t bits;
};

template <typename Number>
Number load(std::span<const std::byte> from, size_t index) {
  Number value;
  std::memcpy(&value, from.data() + index * sizeof(value), sizeof(value));
  return value;
}

template <typename Number>
void store(std::byte* to, size_t index, Number value) {
  std::memcpy(to + index * sizeof(value), &value, sizeof(value));
}

template <typename Number>
float as_float(Number value) {
  if constexpr (std::is_same_v<Number, Half>) {
    return std::bit_cast<float>(uint32_t{value.bits} << 16);
  } else {
    return static_cast<float>(value);
  }
}

bool is_float(DType type) { return type == DType::kF32 || type == DType::kBf16; }

bool is_image(const Shape& shape) { return shape.size() == 3; }

const Shape& stored_shape(const Feature& feature) {
  return feature.stored_shape.empty() ? feature.shape : feature.stored_shape;
}

}  // namespace

Converter::Converter(Feature feature, uint64_t number)
    : feature_(std::move(feature)), number_(number) {
  check_feature();
  elements_ = driver::element_count(feature_.shape);
  stored_elements_ = driver::element_count(stored_shape(feature_));
  bytes_ = driver::byte_count(feature_.type, feature_.shape);
}

void Converter::check_feature() const {
  const Feature& f = feature_;
  const auto refuse = [&](const std::string& what) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument,
                        fmt::format("feature '{}': {}", f.name, what));
  };
  if (f.type >= DType::kBytes1 || f.stored_type.value_or(DType::kU8) >= DType::kBytes1) {
    refuse(
        fmt::format("elements of type {} cannot be fed to a program", driver::dtype_name(f.type)));
  }
  if (driver::element_count(f.shape) == 0) {
    refuse(fmt::format("{} has no elements", driver::type_text(f.type, f.shape)));
  }
  if (!is_float(f.type) && (f.subtract != 0.0f || f.divide != 1.0f)) {
    refuse(fmt::format("{} cannot be scaled; f32 and bf16 can", driver::dtype_name(f.type)));
  }
  if (!std::isfinite(f.subtract) || !std::isfinite(f.divide) || f.divide == 0.0f) {
    refuse(fmt::format("(value - {}) / {} is not a number", f.subtract, f.divide));
  }
  if (f.range && is_float(f.type)) {
    refuse(fmt::format("a range is of integers, not of {}", driver::dtype_name(f.type)));
  }
  if (f.range && f.range->low > f.range->high) {
    refuse(fmt::format("no integer is in the range {} to {}", f.range->low, f.range->high));
  }
  const Shape& stored = stored_shape(f);
  if (stored == f.shape && f.crop_padding == 0 && !f.flip) {
    return;
  }
  if (!is_image(f.shape) || !is_image(stored) || stored[2] != f.shape[2]) {
    refuse(
        fmt::format("only images [height, width, channels] can be cut and mirrored, not {} out "
                    "of {}",
                    driver::type_text(f.type, f.shape), driver::type_text(f.type, stored)));
  }
  if (f.crop_padding < 0 || f.crop_padding > std::numeric_limits<int32_t>::max()) {
    refuse(fmt::format("invalid padding {}", f.crop_padding));
  }
  for (const size_t side : {0u, 1u}) {
    if (stored[side] + 2 * f.crop_padding < f.shape[side]) {
      refuse(fmt::format("{} cannot be cut out of {} padded by {}",
                         driver::type_text(f.type, f.shape), driver::type_text(f.type, stored),
                         f.crop_padding));
    }
  }
}

// Bytes of any element type: an image moves by whole pixels.
std::span<const std::byte> Converter::cut(const Value& value, const AugmentKey& key) {
  const Feature& f = feature_;
  const Shape& stored = stored_shape(f);
  if (stored == f.shape && (!f.augment || (f.crop_padding == 0 && !f.flip))) {
    return value.bytes;
  }
  const training::RandomStream random(key.seed, training::RandomPurpose::kAugment, key.epoch);
  const uint64_t first = (number_ << 40) + key.example * 3;  // numbers of this feature and example
  std::array<int64_t, 2> from{};  // where the cut begins in the stored image; negative: padding
  for (const size_t side : {0u, 1u}) {
    const int64_t pad = f.augment ? f.crop_padding : 0;
    const int64_t room = stored[side] + 2 * pad - f.shape[side];
    from[side] =
        f.augment
            ? static_cast<int64_t>(random.below(first + side, static_cast<uint64_t>(room) + 1)) -
                  pad
            : room / 2;
  }
  const bool mirror = f.augment && f.flip && random.below(first + 2, 2) == 1;
  const size_t pixel = driver::dtype_bytes(value.type) * static_cast<size_t>(f.shape[2]);
  const auto width = static_cast<size_t>(f.shape[1]);
  cut_.assign(elements_ * driver::dtype_bytes(value.type), std::byte{0});
  const int64_t left = std::clamp<int64_t>(-from[1], 0, f.shape[1]);
  const int64_t right = std::clamp<int64_t>(stored[1] - from[1], left, f.shape[1]);
  for (int64_t row = 0; row < f.shape[0]; ++row) {
    const int64_t source_row = row + from[0];
    if (source_row < 0 || source_row >= stored[0] || left == right) {
      continue;
    }
    std::byte* line = cut_.data() + static_cast<size_t>(row) * width * pixel;
    const std::byte* source =
        value.bytes.data() + static_cast<size_t>(source_row * stored[1] + from[1] + left) * pixel;
    const auto count = static_cast<size_t>(right - left);
    if (!mirror) {
      std::memcpy(line + static_cast<size_t>(left) * pixel, source, count * pixel);
      continue;
    }
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(line + (width - 1 - static_cast<size_t>(left) - i) * pixel, source + i * pixel,
                  pixel);
    }
  }
  return cut_;
}

// Plain loops over locals: the compiler makes vectors of them.
template <typename From>
void Converter::to_floats(std::span<const std::byte> from, std::byte* to) const {
  const float subtract = feature_.subtract;
  const float divide = feature_.divide;
  const size_t count = elements_;
  if (feature_.type == DType::kF32) {
    for (size_t i = 0; i < count; ++i) {
      store(to, i, (as_float(load<From>(from, i)) - subtract) / divide);
    }
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    store(to, i, training::bf16_from_f32((as_float(load<From>(from, i)) - subtract) / divide));
  }
}

template <typename From, typename To>
void Converter::to_integers(std::span<const std::byte> from, std::byte* to) const {
  for (size_t i = 0; i < elements_; ++i) {
    const auto value = load<From>(from, i);
    if (!std::in_range<To>(value)) {
      throw BadExample(fmt::format("feature '{}': value {} does not fit into {}", feature_.name,
                                   value, driver::dtype_name(feature_.type)));
    }
    if (feature_.range && (std::cmp_less(value, feature_.range->low) ||
                           std::cmp_greater(value, feature_.range->high))) {
      throw BadExample(fmt::format("feature '{}': value {} is not in the range {} to {}",
                                   feature_.name, value, feature_.range->low,
                                   feature_.range->high));
    }
    store(to, i, static_cast<To>(value));
  }
}

template <typename From>
void Converter::convert_from(std::span<const std::byte> from, std::byte* to) const {
  if (is_float(feature_.type)) {
    return to_floats<From>(from, to);
  }
  if constexpr (std::is_integral_v<From>) {
    switch (feature_.type) {
      case DType::kI8:
        return to_integers<From, int8_t>(from, to);
      case DType::kU8:
        return to_integers<From, uint8_t>(from, to);
      case DType::kI16:
        return to_integers<From, int16_t>(from, to);
      case DType::kU16:
        return to_integers<From, uint16_t>(from, to);
      case DType::kI32:
        return to_integers<From, int32_t>(from, to);
      case DType::kU32:
        return to_integers<From, uint32_t>(from, to);
      case DType::kI64:
        return to_integers<From, int64_t>(from, to);
      case DType::kU64:
        return to_integers<From, uint64_t>(from, to);
      case DType::kI1:
        for (size_t i = 0; i < elements_; ++i) {
          store(to, i, static_cast<uint8_t>(load<From>(from, i) != 0));
        }
        return;
      default:
        break;
    }
  }
  throw BadExample(fmt::format("feature '{}': stored floats cannot become {}: expected f32 or bf16",
                               feature_.name, driver::dtype_name(feature_.type)));
}

void Converter::convert(const Value& value, const AugmentKey& key, std::span<std::byte> to) {
  const uint64_t size = driver::dtype_bytes(value.type);
  if (value.bytes.size() != stored_elements_ * size) {
    throw BadExample(fmt::format(
        "feature '{}': {} bytes, {} elements of {}; {} elements are expected ({})", feature_.name,
        value.bytes.size(), value.bytes.size() / size, driver::dtype_name(value.type),
        stored_elements_, driver::type_text(feature_.type, stored_shape(feature_))));
  }
  if (value.type != feature_.expected_type.value_or(value.type)) {
    throw BadExample(fmt::format("feature '{}': stored as {}; {} is expected", feature_.name,
                                 driver::dtype_name(value.type),
                                 driver::dtype_name(*feature_.expected_type)));
  }
  const std::span<const std::byte> from = cut(value, key);
  const bool unchanged = value.type == feature_.type && value.type != DType::kI1 &&
                         !feature_.range && feature_.subtract == 0.0f && feature_.divide == 1.0f;
  if (unchanged) {
    std::memcpy(to.data(), from.data(), from.size());
    return;
  }
  switch (value.type) {
    case DType::kF32:
      return convert_from<float>(from, to.data());
    case DType::kBf16:
      return convert_from<Half>(from, to.data());
    case DType::kI8:
      return convert_from<int8_t>(from, to.data());
    case DType::kU8:
    case DType::kI1:
      return convert_from<uint8_t>(from, to.data());
    case DType::kI16:
      return convert_from<int16_t>(from, to.data());
    case DType::kU16:
      return convert_from<uint16_t>(from, to.data());
    case DType::kI32:
      return convert_from<int32_t>(from, to.data());
    case DType::kU32:
      return convert_from<uint32_t>(from, to.data());
    case DType::kI64:
      return convert_from<int64_t>(from, to.data());
    case DType::kU64:
      return convert_from<uint64_t>(from, to.data());
    default:
      throw BadExample(fmt::format(
          "feature '{}': stored elements of type {} cannot be converted to {}", feature_.name,
          driver::dtype_name(value.type), driver::dtype_name(feature_.type)));
  }
}

}  // namespace tpu::input
