// A box is walked by runs: as many inner dimensions as lie together in the global array.
#include "src/box.hpp"

#include <fmt/format.h>

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

Box::Box(DType dtype, const Shape& global, const Shape& offset, const Shape& local)
    : element_(dtype_bytes(dtype)), global_bytes_(byte_count(dtype, global)), local_(local) {
  if (!fits(global, offset, local)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no box [{}] at [{}] in {}", fmt::join(local, ","),
                            fmt::join(offset, ","), type_text(dtype, global)));
  }
  bytes_ = byte_count(dtype, local);
  if (bytes_ == 0) {
    return;
  }
  const size_t rank = global.size();
  std::vector<uint64_t> stride(rank, element_);
  for (size_t d = rank; d-- > 0;) {
    if (d + 1 < rank) {
      stride[d] = stride[d + 1] * static_cast<uint64_t>(global[d + 1]);
    }
    start_ += static_cast<uint64_t>(offset[d]) * stride[d];
  }
  walked_ = rank;
  run_bytes_ = element_;
  while (walked_ > 0) {
    --walked_;
    run_bytes_ *= static_cast<uint64_t>(local[walked_]);
    if (local[walked_] != global[walked_]) {
      break;
    }
  }
  stride_.assign(stride.begin(), stride.begin() + static_cast<ptrdiff_t>(walked_));
}

// Place of run number `run` in the global array.
uint64_t Box::run_place(uint64_t run) const {
  uint64_t place = start_;
  for (size_t d = walked_; d-- > 0;) {
    const auto size = static_cast<uint64_t>(local_[d]);
    place += run % size * stride_[d];
    run /= size;
  }
  return place;
}

// Calls run(bytes behind `first`, global place, length) for each stretch of contiguous bytes.
template <typename Run>
void Box::for_runs(uint64_t first, uint64_t bytes, Run run) const {
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t inside = (first + done) % run_bytes_;
    const uint64_t length = std::min(run_bytes_ - inside, bytes - done);
    run(done, run_place((first + done) / run_bytes_) + inside, length);
    done += length;
  }
}

void Box::cut(std::span<const std::byte> global, uint64_t first, std::span<std::byte> out) const {
  for_runs(first, out.size(), [&](uint64_t at, uint64_t place, uint64_t length) {
    std::memcpy(out.data() + at, global.data() + place, length);
  });
}

void Box::paste(std::span<std::byte> global, uint64_t first,
                std::span<const std::byte> data) const {
  for_runs(first, data.size(), [&](uint64_t at, uint64_t place, uint64_t length) {
    std::memcpy(global.data() + place, data.data() + at, length);
  });
}

std::optional<Difference> Box::first_difference(std::span<const std::byte> global,
                                                std::span<const std::byte> box) const {
  std::optional<Difference> found;
  for_runs(0, bytes_, [&](uint64_t at, uint64_t place, uint64_t length) {
    if (found || std::memcmp(global.data() + place, box.data() + at, length) == 0) {
      return;
    }
    const auto left = global.subspan(place, length);
    const auto right = box.subspan(at, length);
    const auto differs = std::mismatch(left.begin(), left.end(), right.begin()).first;
    const uint64_t inside = static_cast<uint64_t>(differs - left.begin()) / element_ * element_;
    found = Difference{Shape(local_.size()), bits(left.subspan(inside, element_)),
                       bits(right.subspan(inside, element_))};
    uint64_t flat = (at + inside) / element_;
    for (size_t d = local_.size(); d-- > 0;) {
      found->index[d] = static_cast<int64_t>(flat % static_cast<uint64_t>(local_[d]));
      flat /= static_cast<uint64_t>(local_[d]);
    }
  });
  return found;
}

}  // namespace tpu::driver
