// Submission: memory, staging, operations and the command rings. Whatever ends an operation before
// all of it is sent leaves nothing behind: no memory, no open command, no donated buffer.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "file/crc32c.hpp"
#include "src/board/board_impl.hpp"
#include "src/memory/host_room.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

constexpr size_t kLargestListed = 10;

}  // namespace

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

// Backpressure is the only reason to wait here.
void BoardImpl::add(const std::shared_ptr<Operation>& op, const std::shared_ptr<Command>& command) {
  Device& device = devices_.at(command->device);
  while (!health_.broken() && !device.ring.has_room(false)) {
    pump();
  }
  if (!op->error) {
    op->error = health_.broken() ? health_.broken() : op->failed_input();
  }
  if (op->error) {
    return;
  }
  registers_.make_room(1);
  command->index = op->commands.size();
  op->commands.push_back(command);
  op->status.push_back(kStatusOpen);
  command->op = op;
  append(command);
  ++op->open;
  registers_.ring(device, device.ring);
}

void BoardImpl::seal(const std::shared_ptr<Operation>& op) {
  op->sealed = true;
  if (op->open == 0) {
    finish(*op, op->error);
  }
}

// What is in flight keeps its memory until it is over.
void BoardImpl::abandon(const std::shared_ptr<Operation>& op) {
  for (const auto& command : op->commands) {
    if (command) {
      command->on_ok = nullptr;
    }
  }
  op->error = op->error ? op->error : given_up();
  seal(op);
}

BoardImpl::Submission::~Submission() {
  if (std::uncaught_exceptions() > exceptions_) {
    board_.abandon(op_);
  } else {
    board_.seal(op_);
  }
}

// All rings of the gang get their entry without board time in between, so that launches have one
// order everywhere.
void BoardImpl::submit_gang(const std::shared_ptr<Operation>& op) {
  op->status.assign(op->commands.size(), kStatusOpen);
  op->open = op->commands.size();
  op->sealed = true;
  for (size_t i = 0; i < op->commands.size(); ++i) {
    op->commands[i]->op = op;
    op->commands[i]->index = i;
  }
  const auto device_of = [&](const std::shared_ptr<Command>& command) -> Device& {
    return devices_[command->device];
  };
  const auto all_have_room = [&] {
    return std::all_of(op->commands.begin(), op->commands.end(),
                       [&](const auto& command) { return device_of(command).ring.has_room(true); });
  };
  while (!health_.broken() && !all_have_room()) {
    pump();
  }
  if (ErrorPtr error = health_.broken() ? health_.broken() : op->failed_input()) {
    finish(*op, error);
    return;
  }
  registers_.make_room(op->commands.size());
  size_t places = 0;
  try {
    for (; places < op->commands.size(); ++places) {
      device_of(op->commands[places]).ring.make_place();
    }
  } catch (...) {
    while (places > 0) {
      device_of(op->commands[--places]).ring.drop_place();
    }
    throw;
  }
  for (const auto& command : op->commands) {
    enter(command);
  }
  for (const auto& command : op->commands) {
    Device& device = device_of(command);
    registers_.ring(device, device.ring);
  }
}

void BoardImpl::append(const std::shared_ptr<Command>& command) {
  devices_[command->device].ring.make_place();
  enter(command);
}

// The ring has a place for it already, so that nothing here can fail half-way.
void BoardImpl::enter(const std::shared_ptr<Command>& command) {
  devices_[command->device].ring.enter(command);
  if (command->opcode == TPU_OP_LAUNCH) {
    command->op->on_board = true;
  }
}

// The one end of every operation. A launch that ends with an error and of which no step can have
// run gives its donated buffers back.
void BoardImpl::finish(Operation& op, ErrorPtr error) {
  if (op.finished) {
    return;
  }
  op.finished = true;
  op.error = error;  // more pieces of it are not sent
  const bool never_ran = error && !op.on_board;
  for (const auto& weak : std::exchange(op.donated, {})) {
    if (const auto buffer = weak.lock()) {
      never_ran ? buffer->give_back() : buffer->settle();
    }
  }
  if (op.feed) {
    end_feed(*op.feed, error);
  }
  if (sim_.op_times && op.launch() && op.on_board) {
    count_ops(op);
  }
  if (sim_.check && op.launch() && op.on_board) {
    tell_findings(op);
  }
  forget_launch(op);
  outbox_.set_event(*op.event, error);
  // Commands of the window may outlive their operation; ranges must not.
  op.inputs.clear();
  op.after.clear();
  op.reads.clear();
  op.writes.clear();
  op.program.reset();
  op.feed.reset();
  op.residence.reset();
  if (op.on_host_call) {
    outbox_.drop(std::exchange(op.on_host_call, nullptr));
  }
  op.calls.clear();
  for (const auto& command : op.commands) {
    if (!command) {
      continue;
    }
    command->reads.clear();
    command->writes.clear();
    command->keep.clear();
    command->on_ok = nullptr;
  }
  const auto commands = std::move(op.commands);
  op.commands.clear();
  for (const auto& command : commands) {
    if (command) {
      command->op.reset();
    }
  }
}

std::shared_ptr<Allocation> BoardImpl::allocate(int device, uint64_t bytes,
                                                const std::string& label) {
  const std::shared_ptr<DeviceMemory>& memory = devices_.at(device).memory;
  for (;;) {
    if (auto made = Allocation::make(memory, bytes, label)) {
      return made;
    }
    if (bytes <= memory->capacity() && programs_.evict(device)) {
      continue;
    }
    // Ranges whose handles are gone come back when their last command is over.
    if (health_.broken() || devices_.at(device).ring.open() == 0) {
      break;
    }
    pump();
  }
  health_.check_unbroken();
  throw Error(ErrorCode::kResourceExhausted,
              fmt::format("{} bytes for {} do not fit into HBM: {} of {} bytes are in use. Largest "
                          "live buffers:{}",
                          bytes, label, memory->used(), memory->capacity(),
                          memory->largest(kLargestListed)),
              {.device = device, .op = {}, .source = {}});
}

// Contents of HBM may lie in host memory, which comes when it is touched: what it has no room for
// is refused before. Ranges that no longer belong to anything keep theirs for the next ones.
void BoardImpl::need_room_behind(uint64_t bytes, const std::string& what) {
  health_.check_unbroken();  // the call may have waited
  const auto held = bytes < kSmallHostBytes ? std::nullopt : transport_->stats().hbm_host_bytes;
  if (!held) {
    return;
  }
  uint64_t used = 0;
  for (const Device& device : devices_) {
    used += device.memory->used();
  }
  const uint64_t spare = *held - std::min(*held, used);
  need_host_room(bytes - std::min(bytes, spare), what + " on the simulated board");
}

// Waits for room; what the call holds itself can fill the arena, and then a single range serves.
std::shared_ptr<StagingRange> BoardImpl::stage(uint64_t bytes) {
  for (;;) {
    if (auto range = StagingRange::make(arena_, bytes)) {
      return range;
    }
    health_.check_unbroken();
    if (bytes > arena_->staging_bytes() || !devices_.in_flight()) {
      return StagingRange::make_single(arena_, bytes);
    }
    pump();
  }
}

// As stage(), without waiting.
std::shared_ptr<StagingRange> BoardImpl::stage_now(uint64_t bytes) {
  auto range = StagingRange::make(arena_, bytes);
  return range ? range : StagingRange::make_single(arena_, bytes);
}

std::shared_ptr<BufferState> BoardImpl::make_buffer(int device, DType dtype, const Shape& shape,
                                                    std::shared_ptr<Allocation> memory,
                                                    std::shared_ptr<EventState> ready) {
  auto buffer = std::make_shared<BufferState>(std::move(memory));
  buffer->board = shared_from_this();
  buffer->device = device;
  buffer->dtype = dtype;
  buffer->shape = shape;
  buffer->bytes = byte_count(dtype, shape);
  buffer->ready = std::move(ready);
  return buffer;
}

}  // namespace tpu::driver
