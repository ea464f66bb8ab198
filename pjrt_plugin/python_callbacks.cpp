// JAX registers callbacks with each plugin for which its table of backends has a C API
// (`xla_bridge.register_plugin_callbacks`). Its own backend `tpu` loads TPU_LIBRARY_PATH too late
// for that, and its entry has none. So the entry is completed here, when the client is made: what
// JAX registers later finds it, and what JAX holds ready is called. With any other JAX, where these
// names are missing, nothing changes.
#include "python_callbacks.hpp"

#include <initializer_list>

#include "python.hpp"

namespace tpu::pjrt {
namespace {

constexpr int kFileInput = 257;  // Py_file_input: statements

// `c_api` and `library` are set. The modules are not imported: without JAX there is nothing to do.
constexpr const char* kProgram = R"(
import os, sys

def hand_over():
    bridge = sys.modules["jax._src.xla_bridge"]
    loaded = sys.modules["jax._src.cloud_tpu_init"].get_tpu_library_path()
    tpu = bridge._backend_factories["tpu"]
    if tpu.c_api is not None or not os.path.samefile(loaded, library):
        return
    with bridge._plugin_callback_lock:
        tpu.c_api = c_api
        for callback in bridge._plugin_callbacks:
            try:
                callback(c_api=c_api)
            except Exception:
                pass

hand_over()
)";

using Object = PythonObject;

}  // namespace

void ask_jax_for_callbacks(const PJRT_Api* api) {
  Dl_info here{};
  if (!has_python() || dladdr(api, &here) == 0) {
    return;
  }
  const PythonLock lock;
  auto* const set = python<int(Object*, const char*, Object*)>("PyDict_SetItemString");
  Object* const names = python<Object*()>("PyDict_New")();
  Object* const c_api = python<Object*(const void*, const char*, void (*)(Object*))>(
      "PyCapsule_New")(api, "pjrt_c_api", nullptr);
  Object* const library = python<Object*(const char*)>("PyUnicode_DecodeFSDefault")(here.dli_fname);
  set(names, "c_api", c_api);
  set(names, "library", library);
  Object* const code = python<Object*(const char*, const char*, int)>("Py_CompileString")(
      kProgram, "tpuboard", kFileInput);
  Object* const done =
      code == nullptr
          ? nullptr
          : python<Object*(Object*, Object*, Object*)>("PyEval_EvalCode")(code, names, names);
  if (done == nullptr) {
    python<void()>("PyErr_Clear")();
  }
  for (Object* const object : {done, code, library, c_api, names}) {
    python<void(Object*)>("Py_DecRef")(object);
  }
}

}  // namespace tpu::pjrt
