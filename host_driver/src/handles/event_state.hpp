// State behind an Event. Set once; readable without the board lock.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/health/health.hpp"
#include "src/lock/board_lock.hpp"
#include "sync/mutex.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {

class BoardImpl;
using EventCallback = std::function<void(ErrorPtr)>;

struct EventState {
  EventState() = default;
  explicit EventState(bool without_board) : of_no_board(without_board) {}

  std::weak_ptr<BoardImpl> board;
  const bool of_no_board = false;  // waits block until it is set: no board time makes it ready
  std::atomic<bool> done{false};
  ErrorPtr error;  // written before `done`

  // The rings do not order what depends on it, so that this waits at the host until it is done: an
  // event of the host's own, an operation that waits there itself, a copy from another core.
  bool off_ring TPU_GUARDED_BY(board_lock) = false;

  base::Mutex mutex;  // leaf lock: guards the change of `done`, too
  std::vector<EventCallback> callbacks TPU_GUARDED_BY(mutex);
  base::CondVar changed;  // `done`, of one of no board

  bool open() const { return !done.load(std::memory_order_acquire); }
  bool failed() const { return done.load(std::memory_order_acquire) && error != nullptr; }

  /// Sets the event; the caller runs the returned callbacks when it holds no lock. Nothing is
  /// returned, and nothing changes, when it is set already.
  std::optional<std::vector<EventCallback>> set(ErrorPtr result);
};

/// True on a thread that is inside an on_ready callback.
bool in_event_callback();
/// Throws FailedPrecondition there: for calls that wait.
void refuse_in_callback();
void run_event_callback(const EventCallback& callback, const ErrorPtr& error);
/// As a callback: calls that wait are refused meanwhile.
void run_in_callback(const std::function<void()>& work);

}  // namespace tpu::driver
