// Array: global arrays put together on the host. Boxes go straight to their places in the result;
// only replicas that are compared need memory of their own, a bounded number of them at a time.
#include <fmt/format.h>

#include <algorithm>

#include "src/board_impl.hpp"
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

// State of a sharded update, each run from its owner.
HostArray gather_owned(const std::vector<Buffer>& parts) {
  const BufferState& first = *parts[0].state();
  HostArray global = {first.dtype, first.shape, std::vector<std::byte>(first.bytes)};
  Reads reads;
  for (size_t p = 0; p < parts.size(); ++p) {
    const auto& state = parts[p].state();
    if (state->owned == nullptr || *state->owned != *first.owned || state->bytes != first.bytes) {
      throw Error(ErrorCode::kInvalidArgument, "the parts of the array do not belong together");
    }
    reads.add([&] {
      return state->board->read(state, owned_ranges(*state, p),
                                [&global](uint64_t at, std::span<const std::byte> piece) {
                                  std::copy(piece.begin(), piece.end(),
                                            global.bytes.begin() + static_cast<ptrdiff_t>(at));
                                });
    });
  }
  reads.wait();
  return global;
}

}  // namespace

void Array::wait() const {
  for (const Buffer& part : parts_) {
    part.ready().wait();
  }
}

// Every part is there and fills its box.
std::vector<Box> Array::boxes() const {
  if (parts_.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the array handle is empty");
  }
  std::vector<Box> boxes;
  for (size_t p = 0; p < parts_.size() && p < layout_.offsets.size(); ++p) {
    boxes.emplace_back(dtype_, shape_, layout_.offsets[p], layout_.local);
  }
  if (boxes.size() != parts_.size() ||
      std::any_of(parts_.begin(), parts_.end(), [&](const Buffer& part) {
        return part.bytes() != boxes[0].bytes() || part.dtype() != dtype_;
      })) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the parts of the array do not fit its layout as {}",
                            type_text(dtype_, shape_)));
  }
  return boxes;
}

HostArray Array::gather(bool check, const std::string& what) const {
  refuse_in_callback();
  const std::vector<Box> boxes = this->boxes();
  if (parts_[0].state()->owned != nullptr) {
    return gather_owned(parts_);
  }
  HostArray global{dtype_, shape_, std::vector<std::byte>(boxes[0].global_bytes())};
  std::vector<std::pair<size_t, std::vector<std::byte>>> replicas;  // of earlier parts
  std::vector<size_t> first_of(parts_.size());
  Reads reads;
  const auto compare = [&] {
    reads.wait();
    for (const auto& [p, bytes] : replicas) {
      if (const auto place = boxes[p].first_difference(global.bytes, bytes)) {
        throw Error(ErrorCode::kInternal,
                    fmt::format("{} differs between cores {} and {} at element [{}]: {} and {}",
                                what, parts_[first_of[p]].device(), parts_[p].device(),
                                fmt::join(place->index, ","), place->left, place->right));
      }
    }
    replicas.clear();
  };
  // Reads are asked for before the first wait, so that they overlap.
  for (size_t p = 0; p < parts_.size(); ++p) {
    const auto& offsets = layout_.offsets;
    first_of[p] = static_cast<size_t>(std::find(offsets.begin(), offsets.end(), offsets[p]) -
                                      offsets.begin());
    const auto& state = parts_[p].state();
    if (first_of[p] == p) {
      reads.add([&] {
        return state->board->read(state, {{0, state->bytes}},
                                  [&global, &box = boxes[p]](uint64_t at, auto piece) {
                                    box.paste(global.bytes, at, piece);
                                  });
      });
    } else if (check) {
      if (!replicas.empty() && (replicas.size() + 1) * state->bytes > kComparedBytes) {
        compare();
      }
      replicas.emplace_back(p, std::vector<std::byte>(state->bytes));
      reads.add([&] { return parts_[p].read(replicas.back().second); });
    }
  }
  compare();
  return global;
}

HostArray Array::to_host() const { return gather(false, {}); }
HostArray Array::to_host_checked(const std::string& what) const { return gather(true, what); }

}  // namespace tpu::driver
