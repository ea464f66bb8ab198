#include "lowering_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "abi/executor.h"
#include "errors.hpp"
#include "sync/mutex.hpp"

namespace tpu::tensorflow {
namespace {

constexpr char kTensorFlow[] = "libtensorflow_cc.so.2";
constexpr char kLibrary[] = "libtpuboard_tf.so";
constexpr char kAdvice[] =
    "install tensorflow-tpu of that version, or build tpuboard with -DTPU_TENSORFLOW=ENVIRONMENT "
    "against yours";

base::Mutex loading;
LowerFunction* loaded TPU_GUARDED_BY(loading) = nullptr;

[[noreturn]] void fail(const std::string& text) {
  throw driver::Error(driver::ErrorCode::kFailedPrecondition, text);
}

template <typename Function>
Function* function_of(void* library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

// "2.20.0", or empty outside of TensorFlow.
std::string version_of_process() {
  void* const library = ::dlopen(kTensorFlow, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) {
    return "";
  }
  auto* const version = function_of<const char*()>(library, "TF_Version");
  return version != nullptr ? version() : "";
}

// Beside the library that this is part of.
std::filesystem::path library_path() {
  Dl_info here{};
  ::dladdr(reinterpret_cast<const void*>(&TfTpu_Initialize), &here);
  return std::filesystem::path(here.dli_fname).parent_path() / kLibrary;
}

LowerFunction* load() {
  const std::string running = version_of_process();
  if (running.empty()) {
    fail(fmt::format("a graph of TensorFlow in a process without {}: expected tensorflow-tpu",
                     kTensorFlow));
  }
  const std::filesystem::path path = library_path();
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fail(fmt::format("TensorFlow {}: cannot load the library that lowers its graphs: {}; {}",
                     running, ::dlerror(), kAdvice));
  }
  auto* const version = function_of<LowerVersionFunction>(library, kLowerVersionFunction);
  auto* const lower = function_of<LowerFunction>(library, kLowerFunction);
  if (version == nullptr || lower == nullptr) {
    fail(path.string() + " is not of this tpuboard: install both from one build");
  }
  if (version() != running) {
    fail(fmt::format("{} is for TensorFlow {}, found TensorFlow {}; {}", path.string(), version(),
                     running, kAdvice));
  }
  return lower;
}

}  // namespace

Lowered lower(std::string_view request) {
  LowerFunction* function = nullptr;
  {
    const base::MutexLock lock(loading);
    if (loaded == nullptr) {
      loaded = load();
    }
    function = loaded;
  }
  Lowered lowered;
  function(request.data(), request.size(), lowered);
  if (lowered.error_code != 0) {
    throw pjrt::error_of(static_cast<PJRT_Error_Code>(lowered.error_code), lowered.error.data(),
                         lowered.error.size());
  }
  return lowered;
}

}  // namespace tpu::tensorflow
