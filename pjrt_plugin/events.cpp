// Events are those of the driver. Callbacks come from the thread that lets simulated time pass, or
// at once; they may destroy the event.
#include <chrono>

#include "calls.hpp"
#include "errors.hpp"
#include "host_calls.hpp"
#include "objects.hpp"
#include "runtime/process_runtime.hpp"

namespace tpu::pjrt {
namespace {

// JAX asks for an array's event when a thread is going to sleep until it is ready. What is over
// sooner costs no change of threads: that one lets simulated time pass itself.
constexpr std::chrono::milliseconds kOwnThread{1};

// Whoever waits in a callback would wait for itself: nothing becomes ready before it returns.
void refuse_wait_in_host_call(const driver::Event& event) {
  if (!event.ready()) {
    refuse_in_host_call();
  }
}

}  // namespace

void call(PJRT_Event_Destroy_Args& args) { delete args.event; }

// For work of other frameworks that ours is to wait for.
void call(PJRT_Event_Create_Args& args) {
  const Runtime* runtime = open_runtime();
  if (runtime == nullptr) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                        "PJRT_Event_Create needs an open board; create a client first");
  }
  const driver::HostEvent host = runtime->make_event();
  args.event = new PJRT_Event{host.event(), false, host};
}

void call(PJRT_Event_Set_Args& args) {
  const driver::HostEvent& host = need(args.event, "event").host;
  if (!host.valid()) {
    throw_invalid("the event was not created by PJRT_Event_Create");
  }
  if (args.error_code == PJRT_Error_Code_OK) {
    host.set();
  } else {
    host.fail(error_of(args.error_code, args.error_message, args.error_message_size));
  }
}

void call(PJRT_Event_IsReady_Args& args) {
  args.is_ready = need(args.event, "event").event.ready();
}

// Answers with the error of the event, as Await does.
void call(PJRT_Event_Error_Args& args) {
  const driver::Event& event = need(args.event, "event").event;
  if (!event.ready()) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                        "the event is not ready; wait for it first");
  }
  event.wait();
}

void call(PJRT_Event_Await_Args& args) {
  const driver::Event event = need(args.event, "event").event;
  refuse_wait_in_host_call(event);
  event.wait();
}

void call(PJRT_Event_OnReady_Args& args) {
  const driver::Event event = need(args.event, "event").event;
  PJRT_Event_OnReadyCallback* callback = args.callback;
  if (callback == nullptr) {
    throw_invalid("callback is null");
  }
  if (args.event->awaited) {
    refuse_wait_in_host_call(event);
    event.advance_for(kOwnThread);
  }
  event.on_ready([callback, user = args.user_arg](std::shared_ptr<const driver::Error> error) {
    callback(error ? new_error(*error) : nullptr, user);
  });
}

}  // namespace tpu::pjrt
