// A session is: create, start, stop, collect, destroy. Who collects without a buffer is lent ours;
// who asks for the size first may bring one. The framework opens the board before it starts one;
// without a board there is nothing to tell.
#include "profiler.hpp"

#include <cstring>
#include <memory>
#include <string>

#include "call_log.hpp"
#include "errors.hpp"
#include "runtime/process_runtime.hpp"

struct PLUGIN_Profiler {
  bool started = false;
  std::string space;  // XSpace
};

struct PLUGIN_Profiler_Error {
  std::unique_ptr<PJRT_Error> error;
};

namespace tpu::pjrt {
namespace {

// No look at struct_size: JAX calls stop without having set it. Version 1 has these structs alone.
template <class Args, class Body>
PLUGIN_Profiler_Error* guarded(Args* args, const char* name, const Body& body) noexcept {
  const CallLog::Line line(name);
  std::unique_ptr<PJRT_Error> error;
  try {
    body(need(args, name));
  } catch (...) {
    error.reset(new_error_of_exception());
  }
  line.end(error.get());
  if (error == nullptr) {
    return nullptr;
  }
  return std::make_unique<PLUGIN_Profiler_Error>(PLUGIN_Profiler_Error{std::move(error)}).release();
}

void destroy_error(PLUGIN_Profiler_Error_Destroy_Args* args) { delete args->error; }

void tell_message(PLUGIN_Profiler_Error_Message_Args* args) {
  args->message = args->error->error->message.c_str();
  args->message_size = args->error->error->message.size();
}

PLUGIN_Profiler_Error* tell_code(PLUGIN_Profiler_Error_GetCode_Args* args) {
  args->code = static_cast<int>(args->error->error->code);
  return nullptr;
}

PLUGIN_Profiler_Error* create(PLUGIN_Profiler_Create_Args* args) {
  return guarded(args, "PLUGIN_Profiler_Create",
                 [](auto& call) { call.profiler = new PLUGIN_Profiler; });
}

PLUGIN_Profiler_Error* destroy(PLUGIN_Profiler_Args* args) {
  return guarded(args, "PLUGIN_Profiler_Destroy", [](auto& call) { delete call.profiler; });
}

PLUGIN_Profiler_Error* start(PLUGIN_Profiler_Args* args) {
  return guarded(args, "PLUGIN_Profiler_Start", [](auto& call) {
    PLUGIN_Profiler& profiler = need(call.profiler, "profiler");
    if (const Runtime* runtime = open_runtime()) {
      runtime->begin_profile();
      profiler.started = true;
    }
  });
}

PLUGIN_Profiler_Error* stop(PLUGIN_Profiler_Args* args) {
  return guarded(args, "PLUGIN_Profiler_Stop", [](auto& call) {
    PLUGIN_Profiler& profiler = need(call.profiler, "profiler");
    if (profiler.started) {
      profiler.started = false;
      profiler.space = process_runtime().take_profile(false);
    }
  });
}

PLUGIN_Profiler_Error* collect(PLUGIN_Profiler_CollectData_Args* args) {
  return guarded(args, "PLUGIN_Profiler_CollectData", [](auto& call) {
    std::string& space = need(call.profiler, "profiler").space;
    if (call.buffer != nullptr) {
      std::memcpy(call.buffer, space.data(), space.size());
    } else {
      call.buffer =
          reinterpret_cast<uint8_t*>(space.data());  // lent until the session is destroyed
    }
    call.buffer_size_in_bytes = space.size();
  });
}

}  // namespace

PLUGIN_Profiler_Api profiler_table = {sizeof(PLUGIN_Profiler_Api),
                                      nullptr,
                                      destroy_error,
                                      tell_message,
                                      tell_code,
                                      create,
                                      destroy,
                                      start,
                                      stop,
                                      collect};

}  // namespace tpu::pjrt
