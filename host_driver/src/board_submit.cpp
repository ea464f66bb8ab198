// Submission: memory, staging, operations and the command rings.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "src/board_impl.hpp"
#include "src/crc32c.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

// A copy is cut into pieces of this size, so that staging memory serves several at once.
constexpr uint64_t kCopyPieceBytes = uint64_t{16} << 20;
constexpr uint32_t kMaxOpenCommands = 224;
constexpr uint32_t kMaxOpenLaunches = 32;
constexpr size_t kLargestListed = 10;

// `a` is not before `b`, on counters that wrap.
bool reached(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) >= 0; }

void raise_waits(const Allocation::LanePoints& points, const Device& device,
                 std::array<uint32_t, kLanes>& waits) {
  if (points.boot != device.boots) {
    return;
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    if (points.set[lane] && !reached(waits[lane], points.count[lane])) {
      waits[lane] = points.count[lane];
    }
  }
}

void set_point(Allocation::LanePoints& points, const Device& device, size_t lane, uint32_t point) {
  if (points.boot != device.boots) {
    points = {};
    points.boot = device.boots;
  }
  points.count[lane] = point;
  points.set[lane] = true;
}

ErrorPtr failed_input(const Operation& op) {
  for (const auto& input : op.inputs) {
    if (input->failed()) {
      return input->error;
    }
  }
  return nullptr;
}

}  // namespace

void BoardImpl::check_usable() const {
  if (broken_) {
    throw Error(*broken_);
  }
  if (closed_) {
    throw Error(ErrorCode::kInvalidArgument, "the board is closed");
  }
}

Device& BoardImpl::device_at(int id) {
  if (id < 0 || static_cast<size_t>(id) >= devices_.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no device TPU:{}; this board has TPU:0..{}", id, devices_.size() - 1));
  }
  return devices_[static_cast<size_t>(id)];
}

std::shared_ptr<EventState> BoardImpl::make_event() {
  auto event = std::make_shared<EventState>();
  event->board = weak_from_this();
  return event;
}

std::shared_ptr<Operation> BoardImpl::begin(const std::string& what) {
  auto op = std::make_shared<Operation>();
  op->number = ++op_count_;
  op->what = what;
  op->event = make_event();
  return op;
}

bool BoardImpl::has_room(const Device& device, bool launch) const {
  return device.window.size() < kMaxOpenCommands && (!launch || device.launches < kMaxOpenLaunches);
}

// Backpressure is the only reason to wait here.
void BoardImpl::add(const std::shared_ptr<Operation>& op, std::shared_ptr<Command> command) {
  command->op = op;
  command->index = op->commands.size();
  op->commands.push_back(command);
  op->status.push_back(kStatusOpen);
  ++op->open;
  Device& device = device_at(command->device);
  while (!broken_ && !has_room(device, false)) {
    pump();
  }
  ErrorPtr error = broken_ ? broken_ : failed_input(*op);
  if (error || op->error) {
    op->error = op->error ? op->error : error;
    --op->open;
    return;
  }
  append(command);
  ring_doorbell(device);
}

void BoardImpl::seal(const std::shared_ptr<Operation>& op) {
  op->sealed = true;
  if (op->open == 0) {
    finish(*op, op->error);
  }
}

// All rings of the gang get their entry without board time in between, so that launches have one
// order everywhere.
void BoardImpl::submit_gang(const std::shared_ptr<Operation>& op) {
  for (size_t i = 0; i < op->commands.size(); ++i) {
    op->commands[i]->op = op;
    op->commands[i]->index = i;
  }
  op->status.assign(op->commands.size(), kStatusOpen);
  op->open = op->commands.size();
  op->sealed = true;
  const auto all_have_room = [&] {
    return std::all_of(op->commands.begin(), op->commands.end(), [&](const auto& command) {
      return has_room(devices_[static_cast<size_t>(command->device)], true);
    });
  };
  while (!broken_ && !all_have_room()) {
    pump();
  }
  if (ErrorPtr error = broken_ ? broken_ : failed_input(*op)) {
    finish(*op, error);
    return;
  }
  for (const auto& command : op->commands) {
    append(command);
  }
  for (const auto& command : op->commands) {
    ring_doorbell(devices_[static_cast<size_t>(command->device)]);
  }
}

void BoardImpl::append(const std::shared_ptr<Command>& command) {
  Device& device = devices_[static_cast<size_t>(command->device)];
  std::array<uint32_t, kLanes> waits = device.done;
  for (const auto& range : command->reads) {
    raise_waits(range->writers, device, waits);
  }
  for (const auto& range : command->writes) {
    raise_waits(range->writers, device, waits);
    raise_waits(range->readers, device, waits);
  }
  const size_t lane = command->lane;
  const uint32_t point = ++device.sent[lane];
  for (const auto& range : command->reads) {
    set_point(range->readers, device, lane, point);
  }
  for (const auto& range : command->writes) {
    range->readers = {};
    range->writers = {};
    set_point(range->writers, device, lane, point);
  }

  command->seq = device.tail;
  tpu_command_head_t head{};
  head.opcode = command->opcode;
  head.flags = command->flags;
  head.seq = device.tail;
  head.wait_launch = waits[TPU_LANE_LAUNCH];
  head.wait_up = waits[TPU_LANE_UP];
  head.wait_down = waits[TPU_LANE_DOWN];
  head.epoch = device.epoch;
  std::memcpy(command->wire.data(), &head, sizeof(head));
  constexpr size_t kCrcAt = TPU_CMD_ENTRY_BYTES - sizeof(uint32_t);
  const uint32_t crc = crc32c(std::span(command->wire).first(kCrcAt));
  std::memcpy(command->wire.data() + kCrcAt, &crc, sizeof(crc));

  const size_t slot = device.tail & ((1u << TPU_CMD_RING_LOG2) - 1);
  std::memcpy(device.cmd_ring.data() + slot * TPU_CMD_ENTRY_BYTES, command->wire.data(),
              TPU_CMD_ENTRY_BYTES);
  ++device.tail;
  device.window.push_back(command);
  ++device.open;
  device.launches += command->opcode == TPU_OP_LAUNCH ? 1 : 0;
}

void BoardImpl::ring_doorbell(Device& device) {
  if (device.rung != device.tail) {
    std::atomic_thread_fence(std::memory_order_release);
    device.rung = device.tail;
    write_core(device, spec::core_page::kCmdTail, device.tail);
  }
}

void BoardImpl::finish(Operation& op, ErrorPtr error) {
  if (op.finished) {
    return;
  }
  op.finished = true;
  set_event(*op.event, std::move(error));
  // Commands of the window may outlive their operation; ranges must not.
  op.inputs.clear();
  op.program.reset();
  op.give_back = nullptr;
  for (const auto& command : op.commands) {
    command->reads.clear();
    command->writes.clear();
    command->keep.clear();
    command->good = nullptr;
  }
  const auto commands = std::move(op.commands);
  op.commands.clear();
  for (const auto& command : commands) {
    command->op.reset();
  }
}

std::shared_ptr<Allocation> BoardImpl::allocate(int device, uint64_t bytes,
                                                const std::string& label) {
  const std::shared_ptr<DeviceMemory>& memory = device_at(device).memory;
  for (;;) {
    if (auto made = Allocation::make(memory, bytes, label)) {
      return made;
    }
    // Ranges whose handles are gone come back when their last command is over.
    if (broken_ || device_at(device).open == 0) {
      break;
    }
    pump();
  }
  check_usable();
  throw Error(ErrorCode::kResourceExhausted,
              fmt::format("{} bytes for {} do not fit into HBM: {} of {} bytes are in use. Largest "
                          "live buffers:{}",
                          bytes, label, memory->used(), memory->capacity(),
                          memory->largest(kLargestListed)),
              {.device = device, .op = {}, .source = {}});
}

std::shared_ptr<StagingRange> BoardImpl::stage(uint64_t bytes) {
  for (;;) {
    if (auto range = StagingRange::make(arena_, bytes)) {
      return range;
    }
    check_usable();
    if (!anything_open()) {
      throw Error(ErrorCode::kResourceExhausted,
                  fmt::format("{} bytes do not fit into the staging arena", bytes));
    }
    pump();
  }
}

std::shared_ptr<BufferState> BoardImpl::make_buffer(int device, DType dtype, const Shape& shape,
                                                    std::shared_ptr<Allocation> memory,
                                                    std::shared_ptr<EventState> ready) {
  auto buffer = std::make_shared<BufferState>();
  buffer->board = shared_from_this();
  buffer->device = device;
  buffer->dtype = dtype;
  buffer->shape = shape;
  buffer->bytes = element_count(shape) * dtype_bytes(dtype);
  buffer->memory = std::move(memory);
  buffer->ready = std::move(ready);
  return buffer;
}

std::vector<Buffer> BoardImpl::upload(const std::vector<int>& devices, const HostView& host,
                                      uint64_t alloc_bytes, const std::string& label) {
  const uint64_t bytes = element_count(host.shape) * dtype_bytes(host.dtype);
  if (host.bytes.size() != bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} bytes, {} were given", type_text(host.dtype, host.shape),
                            bytes, host.bytes.size()));
  }
  const Entry entry(*this);
  check_usable();
  std::vector<std::shared_ptr<Allocation>> ranges;
  for (const int device : devices) {
    ranges.push_back(allocate(device, std::max(alloc_bytes, bytes), label));
  }
  std::vector<std::shared_ptr<Operation>> ops;
  for (const int device : devices) {
    ops.push_back(begin(fmt::format("upload of {} to TPU:{}", label, device)));
  }
  for (uint64_t at = 0; at < bytes; at += kCopyPieceBytes) {
    const uint64_t piece = std::min(kCopyPieceBytes, bytes - at);
    const auto staged = stage(piece);
    std::memcpy(staged->bytes().data(), host.bytes.data() + at, piece);
    for (size_t i = 0; i < devices.size(); ++i) {
      auto command = std::make_shared<Command>();
      command->device = devices[i];
      command->writes = {ranges[i]};
      command->keep = {staged};
      tpu_command_copy_t copy{};
      copy.src = staged->iova();
      copy.dst = ranges[i]->address() + at;
      copy.bytes = piece;
      copy.kind = TPU_COPY_H2D;
      set_payload(*command, TPU_OP_COPY, TPU_LANE_UP, copy);
      add(ops[i], std::move(command));
    }
  }
  std::vector<Buffer> buffers;
  for (size_t i = 0; i < devices.size(); ++i) {
    seal(ops[i]);
    buffers.emplace_back(make_buffer(devices[i], host.dtype, host.shape, ranges[i], ops[i]->event));
  }
  return buffers;
}

Buffer BoardImpl::zeros(int device, DType dtype, const Shape& shape) {
  const uint64_t bytes = element_count(shape) * dtype_bytes(dtype);
  const Entry entry(*this);
  check_usable();
  const auto range = allocate(device, bytes, type_text(dtype, shape));
  const auto op = begin(fmt::format("fill on TPU:{}", device));
  if (bytes > 0) {
    auto command = std::make_shared<Command>();
    command->device = device;
    command->writes = {range};
    tpu_command_fill_t fill{};
    fill.dst = range->address();
    fill.bytes = (bytes + 3) / 4 * 4;  // the range is a multiple of 512 bytes
    set_payload(*command, TPU_OP_FILL, TPU_LANE_UP, fill);
    add(op, std::move(command));
  }
  seal(op);
  return Buffer(make_buffer(device, dtype, shape, range, op->event));
}

Buffer BoardImpl::clone(const std::shared_ptr<BufferState>& source) {
  const Entry entry(*this);
  check_usable();
  if (!source->live) {
    throw Error(ErrorCode::kInvalidArgument, "the buffer was donated or deleted");
  }
  const auto range = allocate(source->device, source->memory->bytes(), "copy of a buffer");
  const auto op = begin(fmt::format("copy on TPU:{}", source->device));
  op->inputs = {source->ready};
  if (source->bytes > 0) {
    auto command = std::make_shared<Command>();
    command->device = source->device;
    command->reads = {source->memory};
    command->writes = {range};
    tpu_command_copy_t copy{};
    copy.src = source->memory->address();
    copy.dst = range->address();
    copy.bytes = source->bytes;
    copy.kind = TPU_COPY_D2D;
    copy.peer = static_cast<uint8_t>(source->device);
    set_payload(*command, TPU_OP_COPY, TPU_LANE_UP, copy);
    add(op, std::move(command));
  }
  seal(op);
  auto copy = make_buffer(source->device, source->dtype, source->shape, range, op->event);
  copy->owned = source->owned;
  return Buffer(std::move(copy));
}

Event BoardImpl::read(const std::shared_ptr<BufferState>& source, std::span<std::byte> out) {
  return read_ranges(source, out, {{0, source->bytes}});
}

Event BoardImpl::read_ranges(const std::shared_ptr<BufferState>& source, std::span<std::byte> out,
                             const std::vector<std::pair<uint64_t, uint64_t>>& ranges) {
  if (out.size() != source->bytes) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("the buffer has {} bytes, room for {} was given", source->bytes, out.size()));
  }
  const Entry entry(*this);
  check_usable();
  if (!source->live) {
    throw Error(ErrorCode::kInvalidArgument, "the buffer was donated or deleted");
  }
  const auto op = begin(fmt::format("read from TPU:{}", source->device));
  op->inputs = {source->ready};
  std::vector<std::pair<uint64_t, uint64_t>> pieces;
  for (const auto& [first, end] : ranges) {
    for (uint64_t at = first; at < end; at += kCopyPieceBytes) {
      pieces.emplace_back(at, std::min(kCopyPieceBytes, end - at));
    }
  }
  for (const auto& [at, piece] : pieces) {
    const auto staged = stage(piece);
    auto command = std::make_shared<Command>();
    command->device = source->device;
    command->reads = {source->memory};
    command->keep = {staged};
    std::byte* target = out.data() + at;
    command->good = [staged, target, piece = piece] {
      std::memcpy(target, staged->bytes().data(), piece);
    };
    tpu_command_copy_t copy{};
    copy.src = source->memory->address() + at;
    copy.dst = staged->iova();
    copy.bytes = piece;
    copy.kind = TPU_COPY_D2H;
    set_payload(*command, TPU_OP_COPY, TPU_LANE_DOWN, copy);
    add(op, std::move(command));
  }
  seal(op);
  return Event(op->event);
}

}  // namespace tpu::driver
