// A view of the driver names the span of bytes that may be read, and where in it the first element
// is: negative strides reach in front of it.
#include "host_view.hpp"

namespace tpu::c_api {
namespace {

constexpr size_t kMostDimensions = exe::kMaxRank;

struct Reach {
  int64_t low = 0;   // bytes in front of the first element
  int64_t high = 0;  // bytes behind its begin, up to the begin of the last
};

Reach reach_of(const driver::Shape& shape, const std::vector<int64_t>& strides) {
  Reach reach;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t last = 0;
    int64_t& end = strides[i] < 0 ? reach.low : reach.high;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &last) ||
        __builtin_add_overflow(end, last, &end)) {
      refuse("strides[" + std::to_string(i) + "] leaves the address space");
    }
  }
  return reach;
}

}  // namespace

driver::HostView view_of(const tpu_host_array& host) {
  const auto dtype = static_cast<driver::DType>(host.dtype);
  if (host.rank > kMostDimensions) {
    refuse("an array has at most " + std::to_string(kMostDimensions) + " dimensions, not " +
           std::to_string(host.rank));
  }
  driver::Shape shape;
  if (host.rank > 0) {
    shape.assign(&need(host.shape, "host->shape"), host.shape + host.rank);
  }
  const uint64_t dense = driver::byte_count(dtype, shape);  // refuses negative dimensions
  if (dense == 0) {
    return {dtype, std::move(shape), {}};
  }
  const auto* first = &need(static_cast<const std::byte*>(host.data), "host->data");
  if (host.strides == nullptr || host.rank == 0) {
    return {dtype, std::move(shape), {first, dense}};
  }
  std::vector<int64_t> strides(host.strides, host.strides + host.rank);
  const Reach reach = reach_of(shape, strides);
  const auto bytes = static_cast<size_t>(reach.high - reach.low) + driver::dtype_bytes(dtype);
  return {dtype,
          std::move(shape),
          {first + reach.low, bytes},
          std::move(strides),
          static_cast<uint64_t>(-reach.low)};
}

}  // namespace tpu::c_api
