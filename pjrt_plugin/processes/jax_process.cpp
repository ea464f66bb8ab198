// JAX hands its key-value store to a plugin, but not the number of the process: libtpu has that
// from the machine. So it is looked up where JAX keeps it (`distributed.global_state`). With any
// other JAX, where these names are missing, nothing is found. Older ones keep the store, too, and
// leave its callbacks unset: what their function for a client of a TPU uses tells.
#include "processes/jax_process.hpp"

#include <sstream>

#include "python.hpp"

namespace tpu::pjrt {
namespace {

constexpr int kStatements = 257;  // Py_file_input: statements

constexpr const char* kLookUp = R"(
import sys
state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
make = getattr(sys.modules.get("jax._src.xla_bridge"), "make_tpu_client", None)
found = ""
if state is not None and state.client is not None:
    passes = "global_state" in getattr(getattr(make, "__code__", None), "co_names", ())
    found = f"{state.process_id} {state.num_processes} {state.coordinator_address} {int(passes)}"
)";

using Object = PythonObject;

std::string jax_text() {
  const PythonLock lock;
  Object* const names = python<Object*()>("PyDict_New")();
  Object* const code = python<Object*(const char*, const char*, int)>("Py_CompileString")(
      kLookUp, "tpuboard", kStatements);
  Object* const done =
      code == nullptr
          ? nullptr
          : python<Object*(Object*, Object*, Object*)>("PyEval_EvalCode")(code, names, names);
  std::string text;
  if (done == nullptr) {
    python<void()>("PyErr_Clear")();
  } else if (Object* const found =
                 python<Object*(Object*, const char*)>("PyDict_GetItemString")(names, "found")) {
    const char* const utf8 = python<const char*(Object*)>("PyUnicode_AsUTF8")(found);
    text = utf8 == nullptr ? "" : utf8;
  }
  for (Object* const object : {done, code, names}) {
    python<void(Object*)>("Py_DecRef")(object);
  }
  return text;
}

}  // namespace

std::optional<ToldProcess> jax_process() {
  if (!has_python()) {
    return std::nullopt;
  }
  std::istringstream text(jax_text());
  ToldProcess process;
  if (text >> process.process >> process.processes >> process.coordinator >> process.passes_store) {
    return process;
  }
  return std::nullopt;
}

}  // namespace tpu::pjrt
