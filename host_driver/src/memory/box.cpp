// A box is walked by runs: as many inner dimensions as lie together in the global array.
#include "src/memory/box.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

std::string bits(std::span<const std::byte> element) {
  std::string text = "0x";
  for (size_t i = element.size(); i-- > 0;) {
    text += fmt::format("{:02x}", static_cast<unsigned>(element[i]));
  }
  return text;
}

// The elements of a view with strides lie in its bytes.
void check_strides(const HostView& host) {
  const auto refuse = [&](const std::string& what) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} with strides [{}] and first byte {}: {}", type_text(host.dtype, host.shape),
                    fmt::join(host.strides, ","), host.first_byte, what));
  };
  if (host.strides.size() != host.shape.size()) {
    refuse("expected one stride for each dimension");
  }
  if (element_count(host.shape) == 0) {
    return;
  }
  // Wide enough for the sums of any strides: a shape has less than 2^62 elements.
  __extension__ using Wide = __int128;
  Wide first = host.first_byte;
  Wide end = first + static_cast<Wide>(dtype_bytes(host.dtype));
  for (size_t d = 0; d < host.shape.size(); ++d) {
    const Wide reach = static_cast<Wide>(host.shape[d] - 1) * host.strides[d];
    (reach < 0 ? first : end) += reach;
  }
  if (first < 0 || end > static_cast<Wide>(host.bytes.size())) {
    refuse(fmt::format("elements are outside of its {} bytes", host.bytes.size()));
  }
}

std::vector<int64_t> dense_strides(const HostView& array) {
  std::vector<int64_t> strides(array.shape.size());
  auto stride = static_cast<int64_t>(dtype_bytes(array.dtype));
  for (size_t d = strides.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= array.shape[d];
  }
  return strides;
}

// Runs of a transposed array are single elements: a copy of a known size is one instruction.
void copy_run(std::byte* to, const std::byte* from, uint64_t bytes) {
  switch (bytes) {
    case 1:
      *to = *from;
      break;
    case 2:
      std::memcpy(to, from, 2);
      break;
    case 4:
      std::memcpy(to, from, 4);
      break;
    case 8:
      std::memcpy(to, from, 8);
      break;
    case 16:
      std::memcpy(to, from, 16);
      break;
    default:
      std::memcpy(to, from, bytes);
  }
}

bool fits(const Shape& global, const Shape& offset, const Shape& local) {
  if (offset.size() != global.size() || local.size() != global.size()) {
    return false;
  }
  for (size_t d = 0; d < local.size(); ++d) {
    if (offset[d] < 0 || local[d] < 0 || local[d] > global[d] || offset[d] > global[d] - local[d]) {
      return false;
    }
  }
  return true;
}

}  // namespace

void check_view(const HostView& host) {
  const uint64_t bytes = byte_count(host.dtype, host.shape);
  if (!host.strides.empty()) {
    check_strides(host);
    return;
  }
  if (host.bytes.size() != bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: expected {} bytes, found {}", type_text(host.dtype, host.shape),
                            bytes, host.bytes.size()));
  }
}

Box::Box(const HostView& global, const Shape& offset, const Shape& local)
    : element_(dtype_bytes(global.dtype)),
      global_bytes_(byte_count(global.dtype, global.shape)),
      local_(local) {
  if (!fits(global.shape, offset, local)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the box [{}] at [{}] is outside of {}", fmt::join(local, ","),
                            fmt::join(offset, ","), type_text(global.dtype, global.shape)));
  }
  bytes_ = byte_count(global.dtype, local);
  if (bytes_ == 0) {
    return;
  }
  const size_t rank = global.shape.size();
  stride_ = global.strides.empty() ? dense_strides(global) : global.strides;
  start_ = static_cast<int64_t>(global.first_byte);
  for (size_t d = 0; d < rank; ++d) {
    start_ += offset[d] * stride_[d];
  }
  for (size_t d = 0; d < rank; ++d) {
    stride_[d] = local[d] == 1 ? 0 : stride_[d];  // never taken
  }
  walked_ = rank;
  run_bytes_ = element_;
  while (walked_ > 0 &&
         (local[walked_ - 1] == 1 || stride_[walked_ - 1] == static_cast<int64_t>(run_bytes_))) {
    --walked_;
    run_bytes_ *= static_cast<uint64_t>(local[walked_]);
  }
  stride_.resize(walked_);
}

// Calls run(bytes behind `first`, global place, length) for each stretch of contiguous bytes.
template <typename Run>
void Box::for_runs(uint64_t first, uint64_t bytes, Run run) const {
  if (bytes == 0) {
    return;
  }
  // Where the first run lies; the ones behind it are found by counting on.
  std::vector<int64_t> index(walked_);
  uint64_t number = first / run_bytes_;
  int64_t place = start_;
  for (size_t d = walked_; d-- > 0;) {
    const auto size = static_cast<uint64_t>(local_[d]);
    index[d] = static_cast<int64_t>(number % size);
    place += index[d] * stride_[d];
    number /= size;
  }
  uint64_t inside = first % run_bytes_;
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t length = std::min(run_bytes_ - inside, bytes - done);
    run(done, static_cast<uint64_t>(place) + inside, length);
    done += length;
    inside = 0;
    for (size_t d = walked_; d-- > 0;) {
      place += stride_[d];
      if (++index[d] < local_[d]) {
        break;
      }
      place -= index[d] * stride_[d];
      index[d] = 0;
    }
  }
}

void Box::cut(std::span<const std::byte> global, uint64_t first, std::span<std::byte> out) const {
  for_runs(first, out.size(), [&](uint64_t at, uint64_t place, uint64_t length) {
    copy_run(out.data() + at, global.data() + place, length);
  });
}

void Box::paste(std::span<std::byte> global, uint64_t first, std::span<const std::byte> data,
                uint64_t origin) const {
  for_runs(first, data.size(), [&](uint64_t at, uint64_t place, uint64_t length) {
    std::memcpy(global.data() + (place - origin), data.data() + at, length);
  });
}

// The bytes of a box have the order of the global array, so that those in front of a place come
// first.
uint64_t Box::bytes_before(uint64_t place) const {
  if (bytes_ == 0 || place <= static_cast<uint64_t>(start_)) {
    return 0;
  }
  uint64_t left = place - static_cast<uint64_t>(start_);
  uint64_t inner = bytes_;
  uint64_t before = 0;
  for (size_t d = 0; d < walked_; ++d) {
    const auto size = static_cast<uint64_t>(local_[d]);
    inner /= size;
    if (size == 1) {
      continue;
    }
    const auto stride = static_cast<uint64_t>(stride_[d]);
    const uint64_t whole = std::min(left / stride, size);
    before += whole * inner;
    if (whole == size) {
      return before;
    }
    left -= whole * stride;
  }
  return before + std::min(left, run_bytes_);
}

std::pair<uint64_t, uint64_t> Box::range_within(uint64_t first, uint64_t end) const {
  return {bytes_before(first), bytes_before(end)};
}

std::optional<Difference> Box::first_difference(std::span<const std::byte> global,
                                                std::span<const std::byte> box, uint64_t first,
                                                uint64_t origin) const {
  std::optional<Difference> found;
  for_runs(first, box.size(), [&](uint64_t at, uint64_t place, uint64_t length) {
    if (found || std::memcmp(global.data() + (place - origin), box.data() + at, length) == 0) {
      return;
    }
    const auto left = global.subspan(place - origin, length);
    const auto right = box.subspan(at, length);
    const auto differs = std::mismatch(left.begin(), left.end(), right.begin()).first;
    const uint64_t inside = static_cast<uint64_t>(differs - left.begin()) / element_ * element_;
    found = Difference{Shape(local_.size()), bits(left.subspan(inside, element_)),
                       bits(right.subspan(inside, element_))};
    uint64_t flat = (first + at + inside) / element_;
    for (size_t d = local_.size(); d-- > 0;) {
      found->index[d] = static_cast<int64_t>(flat % static_cast<uint64_t>(local_[d]));
      flat /= static_cast<uint64_t>(local_[d]);
    }
  });
  return found;
}

}  // namespace tpu::driver
