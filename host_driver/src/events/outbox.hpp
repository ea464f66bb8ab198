// Outbox: what a call leaves to be done without the board lock: callbacks of events that became
// ready, lines of the consoles, handlers of host calls that are over (their ends may call the
// board). Filled under the board lock; who gives the lock up takes the contents and delivers them.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "src/handles/event_state.hpp"
#include "tpu/executable.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {

class Outbox {
 public:
  /// Takes a line of a core's console.
  using Console = std::function<void(int device, const std::string& line)>;

  /// Without a console, lines go to standard error.
  void set_console(Console console) { console_ = std::move(console); }

  /// Makes an event ready, or failed, unless it is already.
  void set_event(EventState& event, const ErrorPtr& error);
  void drop(HostCallHandler handler) { dropped_.push_back(std::move(handler)); }
  /// Lines of firmware, which may hold any bytes.
  void add_console(const std::vector<ConsoleLine>& lines);
  /// A line of the driver's own about a core.
  void tell(int device, const std::string& text) { lines_.push_back({device, text}); }

  /// What was taken; needs nothing of the board.
  class Contents {
   public:
    /// Without locks.
    void deliver() const;

   private:
    friend class Outbox;
    std::vector<std::pair<EventCallback, ErrorPtr>> callbacks_;
    std::vector<HostCallHandler> dropped_;  // to go away with this
    std::vector<ConsoleLine> lines_;
    Console console_;
  };
  Contents take();
  /// All but callbacks, which are left to those who made events ready.
  Contents take_all_but_callbacks();

 private:
  Console console_;
  std::vector<std::pair<EventCallback, ErrorPtr>> callbacks_;
  std::vector<HostCallHandler> dropped_;
  std::vector<ConsoleLine> lines_;
};

}  // namespace tpu::driver
