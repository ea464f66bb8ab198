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

// A launch is over, and its event not set yet.
void BoardImpl::end_launch(Operation& launch, const ErrorPtr& error) {
  if (launch.feed) {
    end_feed(*launch.feed, error);
  }
  if (sim_.op_times && launch.on_board) {
    count_ops(launch);
  }
  if (sim_.check && launch.on_board) {
    tell_findings(launch);
  }
  forget_launch(launch);
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
