// Boxes are walked by rows of their innermost dimension.
#include "src/box.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

// Calls row(box byte offset, global byte offset, bytes) for each run of contiguous bytes.
template <typename Row>
void for_rows(const Shape& global, const Shape& offset, const Shape& local, uint64_t element,
              Row row) {
  if (element_count(local) == 0) {
    return;
  }
  const size_t rank = global.size();
  if (rank == 0) {
    row(0, 0, element);
    return;
  }
  std::vector<uint64_t> stride(rank, element);
  for (size_t d = rank - 1; d > 0; --d) {
    stride[d - 1] = stride[d] * static_cast<uint64_t>(global[d]);
  }
  const uint64_t run = static_cast<uint64_t>(local[rank - 1]) * element;
  Shape index(rank, 0);
  uint64_t at = 0;
  for (;;) {
    uint64_t place = 0;
    for (size_t d = 0; d < rank; ++d) {
      place += static_cast<uint64_t>(offset[d] + index[d]) * stride[d];
    }
    row(at, place, run);
    at += run;
    size_t d = rank - 1;
    for (;;) {
      if (d == 0) {
        return;
      }
      --d;
      if (++index[d] < local[d]) {
        break;
      }
      index[d] = 0;
    }
  }
}

std::string bits(std::span<const std::byte> element) {
  std::string text = "0x";
  for (size_t i = element.size(); i-- > 0;) {
    text += fmt::format("{:02x}", static_cast<unsigned>(element[i]));
  }
  return text;
}

}  // namespace

HostArray cut_box(const HostView& global, const Shape& offset, const Shape& local) {
  const uint64_t element = dtype_bytes(global.dtype);
  bool fits = global.bytes.size() == element_count(global.shape) * element &&
              offset.size() == global.shape.size() && local.size() == global.shape.size();
  for (size_t d = 0; fits && d < local.size(); ++d) {
    fits = offset[d] >= 0 && local[d] >= 0 && offset[d] <= global.shape[d] - local[d];
  }
  if (!fits) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no box [{}] at [{}] in {} of {} bytes", fmt::join(local, ","),
                            fmt::join(offset, ","), type_text(global.dtype, global.shape),
                            global.bytes.size()));
  }
  HostArray box{global.dtype, local, std::vector<std::byte>(element_count(local) * element)};
  for_rows(global.shape, offset, local, element, [&](uint64_t at, uint64_t place, uint64_t run) {
    std::memcpy(box.bytes.data() + at, global.bytes.data() + place, run);
  });
  return box;
}

void paste_box(HostArray& global, const HostArray& box, const Shape& offset) {
  for_rows(global.shape, offset, box.shape, dtype_bytes(global.dtype),
           [&](uint64_t at, uint64_t place, uint64_t run) {
             std::memcpy(global.bytes.data() + place, box.bytes.data() + at, run);
           });
}

std::optional<Difference> first_difference(const HostArray& left, const HostArray& right) {
  const auto [l, r] =
      std::mismatch(left.bytes.begin(), left.bytes.end(), right.bytes.begin(), right.bytes.end());
  if (l == left.bytes.end() && r == right.bytes.end()) {
    return std::nullopt;
  }
  const uint64_t element = dtype_bytes(left.dtype);
  uint64_t flat = static_cast<uint64_t>(l - left.bytes.begin()) / element;
  Difference found;
  const auto at = [&](const HostArray& array) {
    return bits(std::span(array.bytes).subspan(flat * element, element));
  };
  found.left = at(left);
  found.right = at(right);
  found.index.resize(left.shape.size());
  for (size_t d = left.shape.size(); d-- > 0;) {
    found.index[d] = static_cast<int64_t>(flat % static_cast<uint64_t>(left.shape[d]));
    flat /= static_cast<uint64_t>(left.shape[d]);
  }
  return found;
}

}  // namespace tpu::driver
