// Copies between host and HBM by commands of the rings.
#include "src/transfers/transfers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "src/handles/access.hpp"
#include "src/memory/word_planes.hpp"

namespace tpu::driver {
namespace {

constexpr uint64_t kLongCopyBytes = uint64_t{64}
                                    << 10;  // calls of other threads do not wait for it
constexpr uint64_t kElementBytes = 8;       // of what lies in planes

// Stretches of HBM that a piece of an array is copied to, or from, and their places in the piece.
struct Copied {
  uint64_t place, at, bytes;
};

// The bytes [at, at + piece) of an array of `bytes`. In planes: the words of their elements, which
// lie together when the piece is the whole array.
std::vector<Copied> copies_of(uint64_t at, uint64_t piece, uint64_t bytes, bool planes) {
  if (!planes || piece == bytes) {
    return {{at, 0, piece}};
  }
  return {{at / 2, 0, piece / 2}, {bytes / 2 + at / 2, piece / 2, piece / 2}};
}

void make_piece(const ByteSource& source, uint64_t at, std::span<std::byte> piece, bool planes) {
  if (planes) {
    fill_planes(source, at, piece);
  } else {
    source(at, piece);
  }
}

}  // namespace

// Sends the same array to all targets; operation i is that of target i.
void Transfers::send_up(const std::vector<std::shared_ptr<Operation>>& ops,
                        const std::vector<std::shared_ptr<Allocation>>& targets, uint64_t bytes,
                        bool planes, const ByteSource& source) {
  const auto all_failed = [&] {
    return std::all_of(ops.begin(), ops.end(), [](const auto& op) { return op->error != nullptr; });
  };
  for (uint64_t at = 0; at < bytes && !all_failed(); at += memory_.piece_bytes()) {
    const uint64_t piece = std::min(memory_.piece_bytes(), bytes - at);
    const auto staged = memory_.stage(piece);
    if (piece < kLongCopyBytes) {
      make_piece(source, at, staged->bytes(), planes);
    } else {
      const Turn::Left copies(turn_);
      make_piece(source, at, staged->bytes(), planes);
    }
    for (size_t i = 0; i < targets.size(); ++i) {
      for (const Copied& stretch : copies_of(at, piece, bytes, planes)) {
        auto command = std::make_shared<Command>();
        command->device = targets[i]->device();
        command->writes = {targets[i]};
        command->keep = {staged};
        tpu_command_copy_t copy{};
        copy.src = staged->iova() + stretch.at;
        copy.dst = targets[i]->address() + stretch.place;
        copy.bytes = stretch.bytes;
        copy.kind = TPU_COPY_H2D;
        set_payload(*command, TPU_OP_COPY, TPU_TRACK_UP, copy);
        operations_.add(ops[i], command);
      }
    }
  }
}

std::vector<Buffer> Transfers::upload(const std::vector<int>& devices, const HostView& host,
                                      const Box& box, const Shape& local, uint64_t alloc_bytes,
                                      const std::string& label) {
  std::vector<std::shared_ptr<Allocation>> ranges;
  for (const int device : devices) {
    ranges.push_back(memory_.allocate(device, std::max(alloc_bytes, box.bytes()), label));
  }
  std::vector<Buffer> buffers;
  std::deque<Operations::Submission> uploads;
  std::vector<std::shared_ptr<Operation>> ops;
  for (size_t i = 0; i < devices.size(); ++i) {
    uploads.emplace_back(operations_, fmt::format("upload of {} to TPU:{}", label, devices[i]));
    ops.push_back(uploads.back().op());
    buffers.push_back(Access::buffer(
        handles_.make_buffer(devices[i], host.dtype, local, ranges[i], ops[i]->event)));
  }
  send_up(ops, ranges, box.bytes(), in_planes(host.dtype),
          [&](uint64_t at, std::span<std::byte> piece) { box.cut(host.bytes, at, piece); });
  return buffers;
}

Buffer Transfers::upload_later(int device, DType dtype, const Shape& shape,
                               const std::shared_ptr<const std::vector<std::byte>>& bytes,
                               const std::vector<Event>& after) {
  const std::string label = type_text(dtype, shape);
  const auto to = memory_.allocate(device, bytes->size(), label);
  const auto op = operations_.begin(fmt::format("upload of {} to TPU:{}", label, device));
  op->writes = {to};
  handles_.depend(*op, after);
  auto buffer = handles_.make_buffer(device, dtype, shape, to, op->event);
  order_.send_in_order(
      op, [this, op, to, bytes, planes = in_planes(dtype)]() TPU_REQUIRES(board_lock) {
        send_up({op}, {to}, bytes->size(), planes, [&](uint64_t at, std::span<std::byte> piece) {
          std::memcpy(piece.data(), bytes->data() + at, piece.size());
        });
      });
  return Access::buffer(std::move(buffer));
}

Buffer Transfers::zeros(int device, DType dtype, const Shape& shape, uint64_t alloc_bytes) {
  const uint64_t bytes = byte_count(dtype, shape);
  const auto range =
      memory_.allocate(device, std::max(alloc_bytes, bytes), type_text(dtype, shape));
  const Operations::Submission fill_op(operations_, fmt::format("fill on TPU:{}", device));
  auto buffer = handles_.make_buffer(device, dtype, shape, range, fill_op.op()->event);
  if (bytes > 0) {
    auto command = std::make_shared<Command>();
    command->device = device;
    command->writes = {range};
    tpu_command_fill_t fill{};
    fill.dst = range->address();
    fill.bytes = (bytes + 3) / 4 * 4;  // the range is a multiple of 512 bytes
    set_payload(*command, TPU_OP_FILL, TPU_TRACK_UP, fill);
    operations_.add(fill_op.op(), command);
  }
  return Access::buffer(std::move(buffer));
}

// COPY of bytes [first, first + bytes) to the same place of `to`. To another core it runs on the
// ring of the source and goes over the links: then no ring orders what follows it on the target.
void Transfers::add_copy(const std::shared_ptr<Operation>& op,
                         const std::shared_ptr<Allocation>& from,
                         const std::shared_ptr<Allocation>& to, uint64_t first, uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  auto command = std::make_shared<Command>();
  command->device = from->device();
  command->reads = {from};
  if (to->device() == from->device()) {
    command->writes = {to};
  } else {
    command->keep = {to};
  }
  tpu_command_copy_t copy{};
  copy.src = from->address() + first;
  copy.dst = to->address() + first;
  copy.bytes = bytes;
  copy.kind = TPU_COPY_D2D;
  copy.peer = static_cast<uint16_t>(to->device());
  set_payload(*command, TPU_OP_COPY, TPU_TRACK_UP, copy);
  operations_.add(op, command);
}

Buffer Transfers::copy(const BufferState& source, int device, const std::vector<Event>& after) {
  const auto to = memory_.allocate(device, handles_.hold(source)->bytes(), "copy of a buffer");
  const Contents from = handles_.contents(source);  // the call may have waited for room
  const auto op = operations_.begin(
      source.device == device ? fmt::format("copy on TPU:{}", device)
                              : fmt::format("copy from TPU:{} to TPU:{}", source.device, device));
  op->inputs = {source.ready};
  op->crosses = std::any_of(from.parts.begin(), from.parts.end(),
                            [&](const auto& part) { return part->device() != device; });
  op->reads = from.parts;
  op->writes = {to};
  handles_.depend(*op, after);
  auto buffer = handles_.make_buffer(device, source.dtype, source.shape, to, op->event);
  order_.send_in_order(
      op, [this, op, to, stretches = from.within(0, source.bytes)]() TPU_REQUIRES(board_lock) {
        for (const auto& [memory, first, end] : stretches) {
          add_copy(op, memory, to, first, end - first);
        }
      });
  return Access::buffer(std::move(buffer));
}

Event Transfers::read(const std::vector<ReadPart>& parts, const std::vector<Event>& after) {
  const auto op = operations_.begin(fmt::format("read from TPU:{}", parts.at(0).source->device));
  struct Part {
    Contents from;
    bool planes;
    uint64_t bytes;
    ByteRanges ranges;
    std::shared_ptr<const ByteSink> sink;
  };
  std::vector<Part> held;
  for (const ReadPart& part : parts) {
    held.push_back({handles_.contents(*part.source), in_planes(part.source->dtype),
                    part.source->bytes, part.ranges, std::make_shared<const ByteSink>(part.sink)});
    op->inputs.push_back(part.source->ready);
    const auto& memory = held.back().from.parts;
    op->reads.insert(op->reads.end(), memory.begin(), memory.end());
  }
  handles_.depend(*op, after);
  const Event done = Access::event(op->event);
  order_.send_in_order(op, [this, op, held = std::move(held)]() TPU_REQUIRES(board_lock) {
    for (const Part& part : held) {
      for (const auto& [from, to] : part.ranges) {
        if (part.planes) {  // arrays that cores own in parts do not
          add_read_planes(op, part.from.parts[0], {from, to, part.bytes}, part.sink);
          continue;
        }
        for (const Contents::Stretch& stretch : part.from.within(from, to)) {
          add_read(op, stretch, part.sink);
        }
      }
    }
  });
  return done;
}

namespace {

std::shared_ptr<Command> copy_down(const std::shared_ptr<Allocation>& memory,
                                   const std::shared_ptr<StagingRange>& staged,
                                   const Copied& stretch, std::function<void()> on_ok) {
  auto command = std::make_shared<Command>();
  command->device = memory->device();
  command->reads = {memory};
  command->keep = {staged};
  command->on_ok = std::move(on_ok);
  tpu_command_copy_t copy{};
  copy.src = memory->address() + stretch.place;
  copy.dst = staged->iova() + stretch.at;
  copy.bytes = stretch.bytes;
  copy.kind = TPU_COPY_D2H;
  set_payload(*command, TPU_OP_COPY, TPU_TRACK_DOWN, copy);
  return command;
}

}  // namespace

// COPYs to staging memory, piece after piece.
void Transfers::add_read(const std::shared_ptr<Operation>& op, const Contents::Stretch& from,
                         const std::shared_ptr<const ByteSink>& sink) {
  for (uint64_t at = from.first; at < from.end && !op->error; at += memory_.piece_bytes()) {
    const auto staged = memory_.stage(std::min(memory_.piece_bytes(), from.end - at));
    operations_.add(op, copy_down(from.memory, staged, {at, 0, staged->bytes().size()},
                                  [staged, sink, at] { (*sink)(at, staged->bytes()); }));
  }
}

// The same of whole elements, whose words come by two copies: the later one to end hands them on.
void Transfers::add_read_planes(const std::shared_ptr<Operation>& op,
                                const std::shared_ptr<Allocation>& memory, const PlaneRange& range,
                                const std::shared_ptr<const ByteSink>& sink) {
  const uint64_t end = (range.end + kElementBytes - 1) / kElementBytes * kElementBytes;
  for (uint64_t at = range.first / kElementBytes * kElementBytes; at < end && !op->error;
       at += memory_.piece_bytes()) {
    const auto staged = memory_.stage(std::min(memory_.piece_bytes(), end - at));
    const auto copies = copies_of(at, staged->bytes().size(), range.bytes, true);
    const auto left = std::make_shared<size_t>(copies.size());
    for (const Copied& stretch : copies) {
      operations_.add(op, copy_down(memory, staged, stretch, [staged, sink, at, range, left] {
                        if (--*left == 0) {
                          drain_planes(staged->bytes(), at, range.first, range.end, *sink);
                        }
                      }));
    }
  }
}

}  // namespace tpu::driver
