// The plugin as a framework has it: loaded with dlopen(), reached through its table alone.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "pjrt_abi.h"

namespace tpu::test {

/// Code and text of an error; "" for none.
struct Outcome {
  PJRT_Error_Code code = PJRT_Error_Code_OK;
  std::string text;
};

inline const PJRT_Api& api() {
  static const PJRT_Api* table = [] {
    // Tests leave nothing in the home folder.
    ::setenv("TPUBOARD_CACHE", "off", 0);
    void* library = dlopen(TPU_PJRT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    auto* get = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
    return get();
  }();
  return *table;
}

inline const PJRT_Layouts_Extension& layouts() {
  const PJRT_Extension_Base* extension = api().extension_start;
  while (extension->type != PJRT_Extension_Type_Layouts) {
    extension = extension->next;
  }
  return *reinterpret_cast<const PJRT_Layouts_Extension*>(extension);
}

/// Zero but for the size that callers must name.
template <typename Args>
Args args_of() {
  Args args{};
  args.struct_size = kPjrtStructSize<Args>;
  return args;
}

inline Outcome outcome_of(PJRT_Error* error) {
  if (error == nullptr) {
    return {};
  }
  auto code = args_of<PJRT_Error_GetCode_Args>();
  code.error = error;
  EXPECT_EQ(api().PJRT_Error_GetCode(&code), nullptr);
  auto message = args_of<PJRT_Error_Message_Args>();
  message.error = error;
  api().PJRT_Error_Message(&message);
  Outcome outcome{code.code, std::string(message.message, message.message_size)};
  auto destroy = args_of<PJRT_Error_Destroy_Args>();
  destroy.error = error;
  api().PJRT_Error_Destroy(&destroy);
  return outcome;
}

/// A call that must succeed.
#define TPU_PJRT_OK(function, args)                                    \
  do {                                                                 \
    const ::tpu::test::Outcome outcome =                               \
        ::tpu::test::outcome_of(::tpu::test::api().function(&(args))); \
    ASSERT_EQ(outcome.code, PJRT_Error_Code_OK) << outcome.text;       \
  } while (false)

inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace tpu::test
