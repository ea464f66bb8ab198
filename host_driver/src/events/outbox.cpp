// Delivery of what a call left to be done without the lock.
#include "src/events/outbox.hpp"

#include <cstdio>

#include "terminal/printable_text.hpp"

namespace tpu::driver {

void Outbox::set_event(EventState& event, const ErrorPtr& error) {
  if (auto callbacks = event.set(error)) {
    for (EventCallback& callback : *callbacks) {
      callbacks_.emplace_back(std::move(callback), error);
    }
  }
}

void Outbox::add_console(const std::vector<ConsoleLine>& lines) {
  for (const ConsoleLine& line : lines) {
    tell(line.device, spec::printable_text(line.text));
  }
}

Outbox::Contents Outbox::take_all_but_callbacks() {
  Contents contents;
  contents.dropped_ = std::exchange(dropped_, {});
  contents.lines_ = std::exchange(lines_, {});
  if (!contents.lines_.empty()) {
    contents.console_ = console_;
  }
  return contents;
}

Outbox::Contents Outbox::take() {
  Contents contents = take_all_but_callbacks();
  contents.callbacks_ = std::exchange(callbacks_, {});
  return contents;
}

void Outbox::Contents::deliver() const {
  for (const ConsoleLine& line : lines_) {
    if (console_) {
      console_(line.device, line.text);
    } else {
      spec::print(stderr, "[TPU:{} firmware] {}\n", line.device, line.text);
    }
  }
  for (const auto& [callback, error] : callbacks_) {
    run_event_callback(callback, error);
  }
}

}  // namespace tpu::driver
