// Names and sizes of element types, and the text of errors.
#include "tpu/types.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <optional>

#include "tpu/error.hpp"
#include "types/dtype_table.hpp"

namespace tpu::driver {
namespace {

constexpr uint64_t kMaxCount = uint64_t{1} << 62;

constexpr std::array<const char*, 5> kOpaqueNames = {"bytes1", "bytes2", "bytes4", "bytes8",
                                                     "bytes16"};

// Index among the types of which only the size is known.
std::optional<size_t> opaque(DType dtype) {
  const size_t index = static_cast<size_t>(dtype) - static_cast<size_t>(DType::kBytes1);
  return index < kOpaqueNames.size() ? std::optional(index) : std::nullopt;
}

const DTypeInfo& info(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  if (index >= kDTypes.size()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("invalid element type {}", index));
  }
  return kDTypes[index];
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
  return index ? uint64_t{1} << *index : info(dtype).bytes;
}

const char* dtype_name(DType dtype) {
  const auto index = opaque(dtype);
  return index ? kOpaqueNames[*index] : info(dtype).name.data();
}

uint64_t element_count(const Shape& shape) {
  bool empty = false;
  for (const int64_t dim : shape) {
    if (dim < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("a dimension has the negative size {}", dim));
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
    case ErrorCode::kDataLoss:
      return "DataLoss";
  }
  return "Unknown";
}

Error::Error(ErrorCode code, const std::string& message, ErrorPlace place)
    : std::runtime_error(decorated(code, message, place)),
      code_(code),
      message_(message),
      place_(std::move(place)) {}

}  // namespace tpu::driver
