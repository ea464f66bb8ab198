// The plugin with one function missing, for slots_test.py: the table of the library that
// SHIM_LIBRARY names, in which the slot that SHIM_SLOT names is one that the plugin does not have.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "pjrt_abi.h"

namespace {

PJRT_Error* (*unimplemented)(void*) = nullptr;

PJRT_Api shortened(const PJRT_Api& table, std::string_view slot) {
  PJRT_Api copy = table;
  unimplemented = table.PJRT_Client_DmaMap;
  bool found = slot.empty();
#define TPU_SHIM_NONE(name)
#define TPU_SHIM_SLOT(name)                                                         \
  if (slot == #name) {                                                              \
    copy.name = [](name##_Args*) -> PJRT_Error* { return unimplemented(nullptr); }; \
    found = true;                                                                   \
  }
  TPU_PJRT_SLOTS(TPU_SHIM_NONE, TPU_SHIM_SLOT, TPU_SHIM_NONE)
#undef TPU_SHIM_SLOT
#undef TPU_SHIM_NONE
  if (!found) {
    std::fprintf(stderr, "slot_shim: no slot %s\n", slot.data());
    std::exit(2);
  }
  return copy;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api table = [] {
    void* library = dlopen(std::getenv("SHIM_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    auto* get = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
    return shortened(*get(), std::getenv("SHIM_SLOT"));
  }();
  return &table;
}
