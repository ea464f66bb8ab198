// Events.
#include "handles.hpp"

using namespace tpu::c_api;  // NOLINT: the calls are its only users

int tpu_event_ready(const tpu_event* event) {
  return event != nullptr && event->event.ready() ? 1 : 0;
}

tpu_status tpu_event_wait(const tpu_event* event, int64_t timeout_ns) {
  return guarded([&] {
    if (timeout_ns < 0) {
      need(event, "event").event.wait();
    } else {
      need(event, "event").event.wait_for(std::chrono::nanoseconds(timeout_ns));
    }
  });
}

tpu_status tpu_event_on_ready(const tpu_event* event, tpu_event_callback callback, void* user) {
  return guarded([&] {
    if (callback == nullptr) {
      refuse("callback is a null pointer");
    }
    need(event, "event")
        .event.on_ready([=](const std::shared_ptr<const tpu::driver::Error>& error) {
          if (error == nullptr) {
            callback(user, TPU_OK, "");
          } else {
            callback(user, status_of(error->code()), error->what());
          }
        });
  });
}

void tpu_event_destroy(tpu_event* event) { delete event; }
