// Event: the future of an asynchronous call. Copies share one state. Board time passes only while
// some thread is inside wait() (or another call that waits); see docs/host_driver.md, "Host time".
#pragma once

#include <functional>
#include <memory>

#include "tpu/error.hpp"

namespace tpu::driver {

struct EventState;

class Event {
 public:
  /// An event that is ready and good.
  Event();
  explicit Event(std::shared_ptr<EventState> state);

  /// True when the call is over, well or badly. Never blocks.
  bool ready() const;

  /// Lets board time pass until ready; throws the call's Error when it failed. In an on_ready
  /// callback it throws FailedPrecondition.
  void wait() const;

  /// As wait(), but only the failure is looked at: null when good.
  std::shared_ptr<const Error> wait_for_error() const;

  /// Calls `callback` once with null or the error: at once when ready, else later on a thread that
  /// is waiting on the board, with no lock held. The callback may submit work but not wait.
  void on_ready(std::function<void(std::shared_ptr<const Error>)> callback) const;

 private:
  std::shared_ptr<EventState> state_;
};

}  // namespace tpu::driver
