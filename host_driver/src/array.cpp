// Array: global arrays put together on the host. Boxes go straight to their places in the result;
// only replicas that are compared need memory of their own, a bounded number of them at a time.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "check/host_room.hpp"
#include "src/board/board_impl.hpp"
#include "src/handles/access.hpp"
#include "tpu/buffer.hpp"
#include "tpu/replicas_differ.hpp"

namespace tpu::driver {
namespace {

// Replicas on their way to be compared; one larger than this goes alone.
constexpr uint64_t kComparedBytes = uint64_t{256} << 20;
constexpr uint64_t kPieceBytes = uint64_t{64} << 20;  // of read_pieces()

// Bytes of a global array from `first` on, on the host.
struct Window {
  uint64_t first;
  std::span<std::byte> bytes;
  uint64_t end() const { return first + bytes.size(); }
};

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

// Every part is there and fills its box.
std::vector<Box> boxes_of(const Array& array) {
  const auto& parts = array.parts();
  const Layout& layout = array.layout();
  if (parts.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the array handle is empty");
  }
  if (!layout.terms.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the array {} is a sum of which each core has a term (unreduced axes); "
                            "have the program return it without unreduced axes to read it",
                            type_text(array.dtype(), array.shape())));
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

// Each box from the first part that has it.
std::vector<ReadPart> parts_by_box(const Array& array, const std::vector<Box>& boxes,
                                   const Window& window) {
  std::vector<ReadPart> reads;
  for (size_t p = 0; p < boxes.size(); ++p) {
    if (first_with_box(array, p) == p) {
      reads.push_back({Access::state(array.parts()[p]),
                       {boxes[p].range_within(window.first, window.end())},
                       [window, box = boxes[p]](uint64_t at, std::span<const std::byte> piece) {
                         box.paste(window.bytes, at, piece, window.first);
                       }});
    }
  }
  return reads;
}

Event start_read(const Array& array, const std::vector<Box>& boxes, const Window& window,
                 const std::vector<Event>& after) {
  const auto reads = parts_by_box(array, boxes, window);
  return reads[0].source->board->memory().read(reads, after);
}

// Part `p` of the window, read to `out`.
Event start_read_replica(const Array& array, size_t p, const ByteRanges& range,
                         std::span<std::byte> out) {
  const auto& state = Access::state(array.parts()[p]);
  const auto sink = [out, first = range[0].first](uint64_t at, std::span<const std::byte> piece) {
    std::memcpy(out.data() + (at - first), piece.data(), piece.size());
  };
  return state->board->memory().read({{state, range, sink}}, {});
}

// Memory of replicas that have been compared: new memory costs the host more than the comparison.
class SpareBytes {
 public:
  std::vector<std::byte> take(uint64_t bytes) {
    std::vector<std::byte> taken;
    if (!spare_.empty()) {
      taken = std::move(spare_.back());
      spare_.pop_back();
    }
    taken.resize(bytes);
    return taken;
  }
  void give(std::vector<std::byte> bytes) { spare_.push_back(std::move(bytes)); }

 private:
  std::vector<std::vector<std::byte>> spare_;
};

// Fills the window, and compares all replicas with it.
void read_checked(const Array& array, const std::vector<Box>& boxes, const Window& window,
                  const std::string& what, SpareBytes& spare) {
  struct Replica {
    size_t part;
    uint64_t first;  // byte of the box
    std::vector<std::byte> bytes;
  };
  std::deque<Replica> replicas;  // of earlier parts
  uint64_t held = 0;
  Reads reads;
  const auto compare = [&] {
    reads.wait();
    for (const auto& [p, first, bytes] : replicas) {
      if (const auto place = boxes[p].first_difference(window.bytes, bytes, first, window.first)) {
        const int device = array.parts()[p].device();
        throw ReplicasDiffer(
            fmt::format("{} differs between cores {} and {} at element [{}]: {} and {}", what,
                        array.parts()[first_with_box(array, p)].device(), device,
                        fmt::join(place->index, ","), place->left, place->right),
            {.device = device, .op = {}, .source = {}});
      }
    }
    for (Replica& replica : replicas) {
      spare.give(std::move(replica.bytes));
    }
    replicas.clear();
    held = 0;
  };
  // Reads are asked for before the first wait, so that they overlap.
  reads.add([&] { return start_read(array, boxes, window, {}); });
  for (size_t p = 0; p < boxes.size(); ++p) {
    const bool by_owners = Access::state(array.parts()[p])->owned != nullptr;  // one copy of all
    if (first_with_box(array, p) == p || by_owners) {
      continue;
    }
    const auto range = boxes[p].range_within(window.first, window.end());
    const uint64_t bytes = range.second - range.first;
    if (!replicas.empty() && held + bytes > kComparedBytes) {
      compare();
    }
    replicas.push_back({p, range.first, spare.take(bytes)});
    held += bytes;
    reads.add([&] { return start_read_replica(array, p, {range}, replicas.back().bytes); });
  }
  compare();
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
                fmt::format("the array has {} bytes, but the output has {}",
                            boxes[0].global_bytes(), out.size()));
  }
  return start_read(*this, boxes, {0, out}, after);
}

HostArray Array::to_host() const {
  refuse_in_callback();
  const std::vector<Box> boxes = boxes_of(*this);
  HostArray global = host_array(dtype_, shape_);
  Reads reads;
  reads.add([&] { return start_read(*this, boxes, {0, global.bytes}, {}); });
  reads.wait();
  return global;
}

HostArray Array::to_host_checked(const std::string& what) const {
  refuse_in_callback();
  const std::vector<Box> boxes = boxes_of(*this);
  HostArray global = host_array(dtype_, shape_);
  SpareBytes spare;
  read_checked(*this, boxes, {0, global.bytes}, what, spare);
  return global;
}

void Array::read_pieces(const PieceSink& sink, const std::string& compared) const {
  refuse_in_callback();
  const std::vector<Box> boxes = boxes_of(*this);
  const uint64_t all = boxes[0].global_bytes();
  std::vector<std::byte> piece(std::min(all, kPieceBytes));
  SpareBytes spare;
  wait();  // an array without bytes may have failed, too
  for (uint64_t at = 0; at < all; at += piece.size()) {
    const Window window{at, std::span(piece).first(std::min<uint64_t>(piece.size(), all - at))};
    if (compared.empty()) {
      Reads reads;
      reads.add([&] { return start_read(*this, boxes, window, {}); });
      reads.wait();
    } else {
      read_checked(*this, boxes, window, compared, spare);
    }
    sink(window.bytes);
  }
}

}  // namespace tpu::driver
