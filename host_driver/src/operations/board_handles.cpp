// What is made for handles, and checked of those that are given.
#include "src/operations/board_handles.hpp"

#include <utility>

#include "src/handles/access.hpp"
#include "tpu/types.hpp"

namespace tpu::driver {

void BoardHandles::set_board(const std::shared_ptr<BoardImpl>& board) {
  board_ = board;
  identity_ = board.get();
}

std::shared_ptr<EventState> BoardHandles::make_event() const {
  auto event = std::make_shared<EventState>();
  event->board = board_;
  return event;
}

std::shared_ptr<EventState> BoardHandles::make_host_event() {
  auto event = make_event();
  event->off_ring = true;
  std::erase_if(host_events_, [](const auto& weak) { return weak.expired(); });
  host_events_.push_back(event);
  return event;
}

void BoardHandles::fail_host_events(Outbox& outbox, const ErrorPtr& error) {
  for (const auto& weak : std::exchange(host_events_, {})) {
    if (const auto event = weak.lock()) {
      outbox.set_event(*event, error);
    }
  }
}

std::shared_ptr<BufferState> BoardHandles::make_buffer(int device, DType dtype, const Shape& shape,
                                                       std::shared_ptr<Allocation> memory,
                                                       std::shared_ptr<EventState> ready) const {
  auto buffer = std::make_shared<BufferState>(std::move(memory));
  buffer->board = board_.lock();
  buffer->device = device;
  buffer->dtype = dtype;
  buffer->shape = shape;
  buffer->bytes = byte_count(dtype, shape);
  buffer->ready = std::move(ready);
  return buffer;
}

void BoardHandles::check_after(const std::vector<Event>& after) const {
  for (const Event& event : after) {
    const auto& state = Access::state(event);
    if (state->open() && state->board.lock().get() != identity_) {
      throw Error(ErrorCode::kInvalidArgument, "an event in `after` belongs to another board");
    }
  }
}

void BoardHandles::depend(Operation& op, const std::vector<Event>& after) const {
  check_after(after);
  for (const Event& event : after) {
    const auto& state = Access::state(event);
    op.inputs.push_back(state);
    op.after.push_back(state);
  }
}

std::shared_ptr<Allocation> BoardHandles::hold(const BufferState& buffer) const {
  if (!owns(buffer)) {
    throw Error(ErrorCode::kInvalidArgument, "the buffer belongs to another board");
  }
  auto memory = buffer.hold();
  if (!memory) {
    throw Error(ErrorCode::kFailedPrecondition, "the buffer was donated or deleted");
  }
  return memory;
}

Contents BoardHandles::contents(const BufferState& buffer) const {
  const auto memory = hold(buffer);
  if (buffer.owned == nullptr) {
    return {{memory}, nullptr, 0};
  }
  const OwnedParts parts = buffer.hold_parts();
  if (!parts) {  // discarded by another thread
    hold(buffer);
  }
  return {*parts, buffer.owned, dtype_bytes(buffer.dtype)};
}

}  // namespace tpu::driver
