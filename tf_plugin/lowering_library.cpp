#include "lowering_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "abi/executor.h"
#include "answer.hpp"
#include "client_version.hpp"
#include "errors.hpp"
#include "sync/mutex.hpp"

namespace tpu::tensorflow {
namespace {

constexpr char kAdvice[] =
    "install tensorflow-tpu of that version, or build tpuboard with -DTPU_TENSORFLOW=ENVIRONMENT "
    "against yours";

struct Library {
  LowerFunction* lower = nullptr;
  SeedFunction* seed = nullptr;
  HostSideFunction* host_side = nullptr;
  EmbeddingsFunction* embeddings = nullptr;
  EmbeddingProgramFunction* embedding_program = nullptr;
  EmbeddingCallFunction* embedding_call = nullptr;
  HostTensorFunction* host_tensor = nullptr;

  bool complete() const {
    return lower != nullptr && seed != nullptr && host_side != nullptr && embeddings != nullptr &&
           embedding_program != nullptr && embedding_call != nullptr && host_tensor != nullptr;
  }
};

base::Mutex loading;
Library library TPU_GUARDED_BY(loading);

[[noreturn]] void fail(const std::string& text) {
  throw driver::Error(driver::ErrorCode::kFailedPrecondition, text);
}

template <typename Function>
Function* function_of(void* handle, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(handle, name));
}

// Beside the library that this is part of: there may be one for each version.
std::filesystem::path library_path(const std::string& version) {
  Dl_info here{};
  ::dladdr(reinterpret_cast<const void*>(&TfTpu_Initialize), &here);
  return std::filesystem::path(here.dli_fname).parent_path() /
         fmt::format("libtpuboard_tf-{}.so", minor_version(version));
}

// The functions of the library, once it is known that it fits.
Library checked_functions(void* handle, const std::string& path, const std::string& running) {
  auto* const version = function_of<LowerVersionFunction>(handle, kLowerVersionFunction);
  if (version != nullptr && version() != running) {
    fail(fmt::format("{} is for TensorFlow {}, found TensorFlow {}; {}", path, version(), running,
                     kAdvice));
  }
  auto* const interface = function_of<LowerInterfaceFunction>(handle, kLowerInterfaceFunction);
  const Library found{function_of<LowerFunction>(handle, kLowerFunction),
                      function_of<SeedFunction>(handle, kSeedFunction),
                      function_of<HostSideFunction>(handle, kHostSideFunction),
                      function_of<EmbeddingsFunction>(handle, kEmbeddingsFunction),
                      function_of<EmbeddingProgramFunction>(handle, kEmbeddingProgramFunction),
                      function_of<EmbeddingCallFunction>(handle, kEmbeddingCallFunction),
                      function_of<HostTensorFunction>(handle, kHostTensorFunction)};
  if (interface == nullptr || std::string_view(interface()) != TPU_LOWERING_INTERFACE ||
      !found.complete()) {
    fail(path + " is of another build than the library beside it: install both from one build");
  }
  return found;
}

Library load() {
  const std::string running = client_version();
  if (running.empty()) {
    fail(fmt::format("a graph of TensorFlow in a process without {}: expected tensorflow-tpu",
                     kTensorFlowLibrary));
  }
  const std::filesystem::path path = library_path(running);
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    fail(fmt::format("TensorFlow {}: cannot load the library that lowers its graphs: {}; {}",
                     running, ::dlerror(), kAdvice));
  }
  try {
    return checked_functions(handle, path.string(), running);
  } catch (...) {
    ::dlclose(handle);  // one that fits may take its place
    throw;
  }
}

Library loaded_library() {
  const base::MutexLock lock(loading);
  if (library.lower == nullptr) {
    library = load();
  }
  return library;
}

Lowered checked(Lowered lowered) {
  if (lowered.error_code != 0) {
    throw StatusError({lowered.error_code, lowered.error});
  }
  return lowered;
}

}  // namespace

Lowered lower(std::string_view request) {
  Lowered lowered;
  loaded_library().lower(request.data(), request.size(), lowered);
  return checked(std::move(lowered));
}

Lowered seed(std::string_view module) {
  Lowered lowered;
  loaded_library().seed(module.data(), module.size(), lowered);
  return checked(std::move(lowered));
}

std::shared_ptr<HostSide> host_side(const SE_OutsideCompilationParams& params) {
  std::shared_ptr<HostSide> made;
  loaded_library().host_side(params, made);
  return made;
}

Embeddings embeddings_of(std::string_view config) {
  Embeddings read;
  Outcome outcome;
  loaded_library().embeddings(config.data(), config.size(), read, outcome);
  if (outcome.error_code != 0) {
    throw StatusError({outcome.error_code, outcome.error});
  }
  return read;
}

std::string embedding_program(const Embeddings& embeddings, bool update,
                              const std::vector<EmbeddingIds>& ids) {
  Lowered lowered;
  loaded_library().embedding_program(embeddings, update, ids, lowered);
  return checked(std::move(lowered)).hlo;
}

std::string embedding_call(const Embeddings& embeddings, EmbeddingCall call) {
  Lowered lowered;
  loaded_library().embedding_call(embeddings, call, lowered);
  return checked(std::move(lowered)).hlo;
}

HostTensor host_tensor(const TF_Tensor* tensor) {
  HostTensor read;
  loaded_library().host_tensor(tensor, read);
  return read;
}

}  // namespace tpu::tensorflow
