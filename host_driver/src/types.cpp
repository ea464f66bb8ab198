// Names and sizes of element types, and the text of errors.
#include "tpu/types.hpp"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "exe/executable.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

// Numbered as in the executable format, and so as in the instruction set.
constexpr bool same(DType dtype, exe::Elem elem) {
  return static_cast<uint8_t>(dtype) == static_cast<uint8_t>(elem);
}
static_assert(same(DType::kF32, exe::Elem::f32) && same(DType::kBf16, exe::Elem::bf16) &&
              same(DType::kI1, exe::Elem::i1));
static_assert(same(DType::kI8, exe::Elem::i8) && same(DType::kU8, exe::Elem::ui8));
static_assert(same(DType::kI16, exe::Elem::i16) && same(DType::kU16, exe::Elem::ui16));
static_assert(same(DType::kI32, exe::Elem::i32) && same(DType::kU32, exe::Elem::ui32));
static_assert(same(DType::kI64, exe::Elem::i64) && same(DType::kU64, exe::Elem::ui64));
static_assert(same(DType::kC64, exe::Elem::c64) && same(DType::kC64, exe::Elem::MAX));

constexpr uint64_t kMaxCount = uint64_t{1} << 62;

constexpr std::array<const char*, 5> kOpaqueNames = {"bytes1", "bytes2", "bytes4", "bytes8",
                                                     "bytes16"};

// Index among the types of which only the size is known.
std::optional<size_t> opaque(DType dtype) {
  const size_t index = static_cast<size_t>(dtype) - static_cast<size_t>(DType::kBytes1);
  return index < kOpaqueNames.size() ? std::optional(index) : std::nullopt;
}

exe::Elem checked(DType dtype) {
  const auto elem = static_cast<exe::Elem>(dtype);
  if (elem > exe::Elem::MAX) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("invalid element type {}", static_cast<int>(dtype)));
  }
  return elem;
}

std::string decorated(ErrorCode code, const std::string& message, const ErrorPlace& place) {
  std::string text = fmt::format("{}: {}", error_code_name(code), message);
  if (place.device >= 0) {
    text += fmt::format(" [TPU:{}]", place.device);
  }
  if (!place.op.empty()) {
    text += fmt::format(" [op {}]", place.op);
  }
  if (!place.source.empty()) {
    text += fmt::format(" [at {}]", place.source);
  }
  return text;
}

}  // namespace

uint64_t dtype_bytes(DType dtype) {
  const auto index = opaque(dtype);
  return index ? uint64_t{1} << *index : exe::elem_bytes(checked(dtype));
}

const char* dtype_name(DType dtype) {
  const auto index = opaque(dtype);
  return index ? kOpaqueNames[*index] : exe::elem_name(checked(dtype));
}

uint64_t element_count(const Shape& shape) {
  bool empty = false;
  for (const int64_t dim : shape) {
    if (dim < 0) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("dimension {} is negative", dim));
    }
    empty = empty || dim == 0;
  }
  if (empty) {
    return 0;
  }
  uint64_t count = 1;
  for (const int64_t dim : shape) {
    if (count > kMaxCount / static_cast<uint64_t>(dim)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("the shape [{}] has more than 2^62 elements", fmt::join(shape, ",")));
    }
    count *= static_cast<uint64_t>(dim);
  }
  return count;
}

uint64_t byte_count(DType dtype, const Shape& shape) {
  const uint64_t count = element_count(shape);
  const uint64_t element = dtype_bytes(dtype);
  if (count > kMaxCount / element) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has more than 2^62 bytes", type_text(dtype, shape)));
  }
  return count * element;
}

std::string type_text(DType dtype, const Shape& shape) {
  return fmt::format("{}[{}]", dtype_name(dtype), fmt::join(shape, ","));
}

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "InvalidArgument";
    case ErrorCode::kFailedPrecondition:
      return "FailedPrecondition";
    case ErrorCode::kUnimplemented:
      return "Unimplemented";
    case ErrorCode::kResourceExhausted:
      return "ResourceExhausted";
    case ErrorCode::kCancelled:
      return "Cancelled";
    case ErrorCode::kUnavailable:
      return "Unavailable";
    case ErrorCode::kDeviceFault:
      return "DeviceFault";
    case ErrorCode::kTimeout:
      return "Timeout";
    case ErrorCode::kInternal:
      return "Internal";
  }
  return "Unknown";
}

Error::Error(ErrorCode code, const std::string& message, ErrorPlace place)
    : std::runtime_error(decorated(code, message, place)),
      code_(code),
      message_(message),
      place_(std::move(place)) {}

}  // namespace tpu::driver
