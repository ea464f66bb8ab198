// Event: the future of an asynchronous call. HostEvent: one that the host itself sets, for work
// that is to wait for it. Copies share one state and may outlive the board. All calls may come from
// any thread. Simulated time passes only while some thread is inside wait() (or another call that
// waits), or by OpenOptions::completion_thread; see docs/host_driver.md, "Time and threads".
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "tpu/error.hpp"

namespace tpu::driver {

struct Access;
struct EventState;

/// The future of an asynchronous call.
class Event {
 public:
  /// An event that is ready and good.
  Event();

  /// True when the call is over, well or badly. Never blocks and lets no simulated time pass.
  bool ready() const;

  /// Lets simulated time pass until ready. Throws the call's Error when it failed,
  /// FailedPrecondition in an on_ready callback. Waits for as long as it takes: an event that
  /// depends on a HostEvent is not ready before that one is.
  void wait() const;

  /// As wait(), for at most that much wall-clock time; then it throws Timeout, and the event and
  /// all else stay usable. Zero takes what is there and lets no simulated time pass. A wait that
  /// ends early parks the board where it is: at which simulated time the next call takes effect
  /// then depends on the host.
  void wait_for(std::chrono::nanoseconds timeout) const;

  /// For a thread that is going to wait elsewhere for what on_ready() tells: lets simulated time
  /// pass until ready, for at most that much wall-clock time, unless another thread does so. True
  /// when ready, well or badly. In an on_ready callback it only looks.
  bool advance_for(std::chrono::nanoseconds timeout) const;

  /// As wait(), but only the failure is looked at: null when good.
  std::shared_ptr<const Error> wait_for_error() const;

  /// Calls `callback` once with null or the error: at once when ready, else later on a thread that
  /// lets simulated time pass, with no lock held. The callback may submit work, set a HostEvent and
  /// drop handles, this event's too, but not wait; it must not throw.
  void on_ready(std::function<void(std::shared_ptr<const Error>)> callback) const;

 private:
  friend struct Access;
  explicit Event(std::shared_ptr<EventState> state);
  std::shared_ptr<EventState> state_;
};

/// An event that the host sets (Board::make_event()). Launches and transfers that are told to come
/// after it are sent when it is set. When the last copy of the HostEvent goes away unset, the event
/// fails with Cancelled; so it does when the board closes.
class HostEvent {
 public:
  HostEvent() = default;
  /// An event of no board, for work that another process does: waits block until it is set, and let
  /// no simulated time pass.
  static HostEvent of_no_board();

  bool valid() const { return owner_ != nullptr; }  ///< false for an empty handle

  /// What work can depend on, and what can be waited for. Throws InvalidArgument on an empty
  /// handle.
  Event event() const;

  /// Makes the event ready; callbacks of its on_ready() run in this call. Does not wait: what
  /// depended on it is sent by the next thread that waits or submits. Throws FailedPrecondition
  /// when it is set already (or the board was closed), InvalidArgument on an empty handle.
  void set() const;

  /// As set(), as a failure: what depends on the event fails with this error and does not run.
  void fail(const Error& error) const;

 private:
  friend struct Access;
  struct Owner;
  explicit HostEvent(std::shared_ptr<Owner> owner) : owner_(std::move(owner)) {}
  std::shared_ptr<Owner> owner_;
};

}  // namespace tpu::driver
