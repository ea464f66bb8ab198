// The library as TensorFlow has it: loaded with dlopen(), reached through the names of its
// functions.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <string>
#include <vector>

#include "abi/executor.h"
#include "abi/ops.h"
#include "abi/profiler.h"
#include "format/proto_writer.hpp"

namespace tpu::test {

inline void* library() {
  static void* const loaded = [] {
    // Tests leave nothing in the home folder.
    ::setenv("TPUBOARD_CACHE", "off", 0);
#ifdef FAKE_TENSORFLOW
    EXPECT_NE(::dlopen(FAKE_TENSORFLOW, RTLD_NOW | RTLD_GLOBAL), nullptr) << ::dlerror();
#endif
    void* const handle = ::dlopen(TPU_PJRT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(handle, nullptr) << ::dlerror();
    return handle;
  }();
  return loaded;
}

template <typename Function>
Function* function(const char* name) {
  auto* const found = reinterpret_cast<Function*>(::dlsym(library(), name));
  EXPECT_NE(found, nullptr) << name;
  return found;
}

/// A part of what calls that need the lowering library answer.
#ifdef FAKE_TENSORFLOW
inline constexpr char kNoLowering[] = "cannot load the library that lowers its graphs";
#else
inline constexpr char kNoLowering[] = "expected tensorflow-tpu";
#endif

/// A function of the interface by its name.
#define TPU_TF(name) (::tpu::test::function<decltype(name)>(#name))

/// A status, and what was put into it.
class Status {
 public:
  Status() : status_(TPU_TF(TpuStatus_New)()) {}
  ~Status() { TPU_TF(TpuStatus_Free)(status_); }
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;

  operator TF_Status*() const { return status_; }  // NOLINT: it is one
  int code() const { return TPU_TF(TpuStatus_Code)(status_); }
  std::string text() const { return TPU_TF(TpuStatus_Message)(status_); }

 private:
  TF_Status* const status_;
};

// Codes of absl::StatusCode.
constexpr int kOk = 0, kInvalidArgument = 3, kFailedPrecondition = 9, kUnimplemented = 12;

/// An executor of the board, with a stream.
class Core {
 public:
  explicit Core(int ordinal) {
    static SE_Platform* const platform = TPU_TF(TpuPlatform_New)();
    const Status status;
    TPU_TF(TpuPlatform_Initialize)(platform, status);
    EXPECT_EQ(status.code(), kOk) << status.text();
    executor = TPU_TF(TpuPlatform_GetExecutor)(platform, ordinal, status);
    EXPECT_EQ(status.code(), kOk) << status.text();
    stream = TPU_TF(TpuStream_New)(executor);
  }
  ~Core() { TPU_TF(TpuStream_Free)(stream); }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  SE_DeviceMemoryBase allocate(uint64_t bytes) const {
    return TPU_TF(TpuExecutor_Allocate)(executor, bytes, 0);
  }
  void wait() const {
    const Status status;
    TPU_TF(TpuExecutor_BlockHostUntilDone)(executor, stream, status);
    EXPECT_EQ(status.code(), kOk) << status.text();
  }

  SE_StreamExecutor* executor = nullptr;
  SE_Stream* stream = nullptr;
};

constexpr int kF32 = 11;  // PrimitiveType

inline XLA_Shape f32_shape(int64_t elements) {
  XLA_Shape shape{};
  shape.element_type = kF32;
  shape.dimensions.size = shape.dynamic_dimensions.size = 1;
  shape.dimensions.inlined[0] = elements;
  return shape;
}

/// f32 values as a literal, with the buffer that it is copied to or from.
struct Transfer {
  Transfer(std::vector<float>& values, SE_DeviceMemoryBase memory)
      : base(memory),
        data(reinterpret_cast<char*>(values.data())),
        size(values.size() * sizeof(float)) {
    const XLA_Shape shape = f32_shape(static_cast<int64_t>(values.size()));
    literal = {&data, &size, 1, shape};
    buffer = {shape, 0, &base, 1};
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  SE_DeviceMemoryBase base;
  char* data;
  size_t size;
  XLA_Literal literal{};
  XLA_ShapedBuffer buffer{};
};

inline void to_device(const Core& core, std::vector<float> values, SE_DeviceMemoryBase memory) {
  Transfer transfer(values, memory);
  const Status status;
  TPU_TF(TpuTransferManager_TransferLiteralToDeviceAsync)
  (nullptr, core.stream, &transfer.literal, &transfer.buffer, status);
  EXPECT_EQ(status.code(), kOk) << status.text();
}

/// The values, or the text of the error as the caller of the callback gets it.
inline std::pair<std::vector<float>, std::string> from_device(const Core& core, size_t elements,
                                                              SE_DeviceMemoryBase memory) {
  std::vector<float> values(elements);
  Transfer transfer(values, memory);
  std::promise<std::string> told;
  TPU_TF(TpuTransferManager_TransferLiteralFromDevice)
  (
      nullptr, core.stream, &transfer.buffer, &transfer.literal,
      [](void* context, TF_Status* status) {
        const std::string text = TPU_TF(TpuStatus_Message)(status);
        TPU_TF(TpuStatus_Free)(status);
        static_cast<std::promise<std::string>*>(context)->set_value(text);
      },
      &told);
  const std::string error = told.get_future().get();
  core.wait();  // an error is told once
  return {values, error};
}

/// HloModuleProto of the sum of two f32 arrays. `in_place`: it takes over the first of them.
inline std::string sum_module(int64_t elements, bool in_place = false) {
  spec::ProtoWriter to;
  const auto shape = [&](uint32_t field) {
    to.message(field, [&] {
      to.number(2, kF32);
      to.text(3, std::string(1, static_cast<char>(elements)));  // below 128
    });
  };
  const auto instruction = [&](const char* name, const char* opcode, int64_t id, const auto& rest) {
    to.message(2, [&] {
      to.text(1, name);
      to.text(2, opcode);
      shape(3);
      rest();
      to.number(35, static_cast<uint64_t>(id));
    });
  };
  to.text(1, "sum");
  to.text(2, "main");
  to.message(3, [&] {
    to.text(1, "main");
    instruction("x", "parameter", 1, [&] { to.number(9, 0); });
    instruction("y", "parameter", 2, [&] { to.number(9, 1); });
    instruction("sum", "add", 3, [&] { to.text(36, "\x01\x02"); });
    to.number(5, 7);
    to.number(6, 3);
  });
  to.number(6, 7);
  if (in_place) {
    to.message(8, [&] { to.message(1, [&] { to.number(4, 1); }); });
  }
  return to.take();
}

}  // namespace tpu::test
