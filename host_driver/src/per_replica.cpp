// Reductions of what the cores have, on the host.
#include "tpu/per_replica.hpp"

#include <algorithm>
#include <cstring>

#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

// Sums of i32 wrap as the board's do: as unsigned numbers.
int32_t added(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}
float added(float a, float b) { return a + b; }

template <typename Number>
Number combined(Reduction reduction, Number a, Number b) {
  switch (reduction) {
    case Reduction::kMin:
      return std::min(a, b);
    case Reduction::kMax:
      return std::max(a, b);
    case Reduction::kSum:
    case Reduction::kMean:
      break;
  }
  return added(a, b);
}

template <typename Number>
HostArray reduced(Reduction reduction, const PerReplica<HostArray>& values) {
  HostArray result = values[0];
  for (size_t at = 0; at < result.bytes.size(); at += sizeof(Number)) {
    Number sum{};
    std::memcpy(&sum, result.bytes.data() + at, sizeof(sum));
    for (size_t replica = 1; replica < values.size(); ++replica) {
      Number value{};
      std::memcpy(&value, values[replica].bytes.data() + at, sizeof(value));
      sum = combined(reduction, sum, value);
    }
    if (reduction == Reduction::kMean) {
      sum = sum / static_cast<Number>(values.size());
    }
    std::memcpy(result.bytes.data() + at, &sum, sizeof(sum));
  }
  return result;
}

}  // namespace

PerReplica<HostArray> per_replica(const Array& array) {
  std::vector<HostArray> values;
  for (const Buffer& part : array.parts()) {
    values.push_back(part.to_host());
  }
  return PerReplica<HostArray>(std::move(values));
}

HostArray reduce(Reduction reduction, const PerReplica<HostArray>& values) {
  if (values.size() == 0) {
    throw Error(ErrorCode::kInvalidArgument, "reduce: expected at least one value, found 0");
  }
  for (const HostArray& value : values) {
    if (value.dtype != values[0].dtype || value.shape != values[0].shape) {
      throw Error(ErrorCode::kInvalidArgument,
                  "reduce: one core has " + type_text(value.dtype, value.shape) + ", another " +
                      type_text(values[0].dtype, values[0].shape));
    }
  }
  if (values[0].dtype == DType::kF32) {
    return reduced<float>(reduction, values);
  }
  if (values[0].dtype == DType::kI32) {
    return reduced<int32_t>(reduction, values);
  }
  throw Error(ErrorCode::kInvalidArgument,
              std::string("reduce: f32 or i32 is expected, not ") + dtype_name(values[0].dtype));
}

}  // namespace tpu::driver
