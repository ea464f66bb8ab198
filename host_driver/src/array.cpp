// Array: global arrays put together on the host. Boxes go straight to their places in the result;
// only replicas that are compared need memory of their own, a bounded number of them at a time.
#include <fmt/format.h>

#include <algorithm>

#include "src/access.hpp"
#include "src/board/board_impl.hpp"
#include "src/memory/host_room.hpp"
#include "tpu/buffer.hpp"

namespace tpu::driver {
namespace {

// Replicas on their way to be compared; one larger than this goes alone.
constexpr uint64_t kComparedBytes = uint64_t{256} << 20;

// Reads under way into memory that outlives them: it is waited for on every path.
class Reads {
 public:
  Reads() = default;
  ~Reads() { static_cast<void>(settle()); }
  Reads(const Reads&) = delete;
  Reads& operator=(const Reads&) = delete;

  void add(const std::function<Event()>& start) {
    events_.emplace_back();  // before the start: then nothing can fail between it and its place
    events_.back() = start();
  }
  /// Throws the first failure when all are over.
  void wait() {
    if (const ErrorPtr failure = settle()) {
      throw Error(*failure);
    }
  }

 private:
  ErrorPtr settle() {
    ErrorPtr failure;
    for (const Event& event : events_) {
      const ErrorPtr error = event.wait_for_error();
      failure = failure ? failure : error;
    }
    events_.clear();
    return failure;
  }

  std::vector<Event> events_;
};

// Runs of a sharded update that part `owner` keeps, as bytes.
ByteRanges owned_ranges(const BufferState& state, size_t owner) {
  const uint64_t element = dtype_bytes(state.dtype);
  ByteRanges ranges;
  uint64_t at = 0;
  for (const OwnedRun& run : *state.owned) {
    const uint64_t end = at + run.elements * element;
    if (run.owner == owner) {
      ranges.emplace_back(at, end);
    }
    at = end;
  }
  return ranges;
}

// Every part is there and fills its box.
std::vector<Box> boxes_of(const Array& array) {
  const auto& parts = array.parts();
  const Layout& layout = array.layout();
  if (parts.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the array handle is empty");
  }
  std::vector<Box> boxes;
  for (size_t p = 0; p < parts.size() && p < layout.offsets.size(); ++p) {
    boxes.emplace_back(array.dtype(), array.shape(), layout.offsets[p], layout.local);
  }
  if (boxes.size() != parts.size() ||
      std::any_of(parts.begin(), parts.end(), [&](const Buffer& part) {
        return part.bytes() != boxes[0].bytes() || part.dtype() != array.dtype();
      })) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the parts of the array do not fit its layout as {}",
                            type_text(array.dtype(), array.shape())));
  }
  return boxes;
}

// The first part that holds the box of part `p`.
size_t first_with_box(const Array& array, size_t p) {
  const auto& offsets = array.layout().offsets;
  return static_cast<size_t>(std::find(offsets.begin(), offsets.end(), offsets[p]) -
                             offsets.begin());
}

// State of a sharded update, each run from its owner.
std::vector<ReadPart> parts_by_owner(const Array& array, std::span<std::byte> out) {
  const BufferState& first = *Access::state(array.parts()[0]);
  std::vector<ReadPart> reads;
  for (size_t p = 0; p < array.parts().size(); ++p) {
    const auto& state = Access::state(array.parts()[p]);
    if (state->owned == nullptr || *state->owned != *first.owned || state->bytes != first.bytes) {
      throw Error(ErrorCode::kInvalidArgument, "the parts of the array do not belong together");
    }
    reads.push_back(
        {state, owned_ranges(*state, p), [out](uint64_t at, std::span<const std::byte> piece) {
           std::copy(piece.begin(), piece.end(), out.begin() + static_cast<ptrdiff_t>(at));
         }});
  }
  return reads;
}

// Each box from the first part that has it.
std::vector<ReadPart> parts_by_box(const Array& array, const std::vector<Box>& boxes,
                                   std::span<std::byte> out) {
  std::vector<ReadPart> reads;
  for (size_t p = 0; p < boxes.size(); ++p) {
    if (first_with_box(array, p) == p) {
      const auto& state = Access::state(array.parts()[p]);
      reads.push_back({state,
                       {{0, state->bytes}},
                       [out, box = boxes[p]](uint64_t at, std::span<const std::byte> piece) {
                         box.paste(out, at, piece);
                       }});
    }
  }
  return reads;
}

bool kept_by_owners(const Array& array) {
  return Access::state(array.parts()[0])->owned != nullptr;
}

Event start_read(const Array& array, const std::vector<Box>& boxes, std::span<std::byte> out,
                 const std::vector<Event>& after) {
  const auto reads =
      kept_by_owners(array) ? parts_by_owner(array, out) : parts_by_box(array, boxes, out);
  return reads[0].source->board->read(reads, after);
}

}  // namespace

void Array::wait() const {
  for (const Buffer& part : parts_) {
    part.ready().wait();
  }
}

void Array::discard() const {
  for (const Buffer& part : parts_) {
    part.discard();
  }
}

Event Array::read(std::span<std::byte> out, const std::vector<Event>& after) const {
  const std::vector<Box> boxes = boxes_of(*this);
  if (out.size() != boxes[0].global_bytes()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the array has {} bytes, room for {} was given",
                            boxes[0].global_bytes(), out.size()));
  }
  return start_read(*this, boxes, out, after);
}

HostArray Array::to_host() const {
  refuse_in_callback();
  const std::vector<Box> boxes = boxes_of(*this);
  HostArray global = host_array(dtype_, shape_);
  Reads reads;
  reads.add([&] { return start_read(*this, boxes, global.bytes, {}); });
  reads.wait();
  return global;
}

HostArray Array::to_host_checked(const std::string& what) const {
  refuse_in_callback();
  const std::vector<Box> boxes = boxes_of(*this);
  if (kept_by_owners(*this)) {
    return to_host();
  }
  HostArray global = host_array(dtype_, shape_);
  std::vector<std::pair<size_t, std::vector<std::byte>>> replicas;  // of earlier parts
  Reads reads;
  const auto compare = [&] {
    reads.wait();
    for (const auto& [p, bytes] : replicas) {
      if (const auto place = boxes[p].first_difference(global.bytes, bytes)) {
        throw Error(ErrorCode::kInternal,
                    fmt::format("{} differs between cores {} and {} at element [{}]: {} and {}",
                                what, parts_[first_with_box(*this, p)].device(), parts_[p].device(),
                                fmt::join(place->index, ","), place->left, place->right));
      }
    }
    replicas.clear();
  };
  // Reads are asked for before the first wait, so that they overlap.
  reads.add([&] { return start_read(*this, boxes, global.bytes, {}); });
  for (size_t p = 0; p < parts_.size(); ++p) {
    if (first_with_box(*this, p) == p) {
      continue;
    }
    if (!replicas.empty() && (replicas.size() + 1) * parts_[p].bytes() > kComparedBytes) {
      compare();
    }
    replicas.emplace_back(p, std::vector<std::byte>(parts_[p].bytes()));
    reads.add([&] { return parts_[p].read(replicas.back().second); });
  }
  compare();
  return global;
}

}  // namespace tpu::driver
