// The way from the public handles to what is behind them, for the driver and its tests alone.
#pragma once

#include <memory>
#include <utility>

#include "tpu/board.hpp"

namespace tpu::driver {

struct Access {
  static const std::shared_ptr<BoardImpl>& impl(const Board& board) { return board.impl_; }
  static const std::shared_ptr<BufferState>& state(const Buffer& buffer) { return buffer.state_; }
  static const std::shared_ptr<ExecutableState>& state(const Executable& executable) {
    return executable.state_;
  }
  static const std::shared_ptr<EventState>& state(const Event& event) { return event.state_; }

  static Buffer buffer(std::shared_ptr<BufferState> state) { return Buffer(std::move(state)); }
  static Event event(std::shared_ptr<EventState> state) { return Event(std::move(state)); }
  static Executable executable(std::shared_ptr<ExecutableState> state) {
    return Executable(std::move(state));
  }
  static StepFeed step_feed(std::shared_ptr<BoardImpl> board, std::shared_ptr<StepFeedState> state);
  /// Made from the state of an event that nobody else sets.
  static HostEvent host_event(std::shared_ptr<EventState> state);
};

}  // namespace tpu::driver
