// What the handles of the C interface (tpu/tpu.h) point to, and how calls turn exceptions into
// status codes and read and fill structs of a size that the caller names.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exe/executable.hpp"
#include "tpu/board.hpp"
#include "tpu/tpu.h"

struct tpu_program {
  std::shared_ptr<const tpu::exe::ExecutableT> executable;
  std::vector<std::string> notes;

  // The same as bytes (.tpuexe), made when they are first asked for. From any thread.
  const std::vector<std::byte>& container() const {
    std::call_once(written_, [this] { container_ = tpu::exe::write_executable(*executable); });
    return container_;
  }

 private:
  mutable std::once_flag written_;
  mutable std::vector<std::byte> container_;
};

struct tpu_op_times {
  std::vector<tpu::driver::OpTime> times;
};

struct tpu_event {
  tpu::driver::Event event;
};

struct tpu_array {
  tpu::driver::Array array;
};

struct tpu_executable {
  tpu::driver::Executable executable;
};

namespace tpu::c_api {

// Keeps the text for tpu_error_message(); never throws.
tpu_status failed(driver::ErrorCode code, const char* text) noexcept;
// Of the exception that is being handled.
tpu_status failed_by_exception() noexcept;
tpu_status status_of(driver::ErrorCode code);

[[noreturn]] void refuse(const std::string& text);

template <class Call>
tpu_status guarded(Call&& call) noexcept {
  try {
    call();
    return TPU_OK;
  } catch (...) {
    return failed_by_exception();
  }
}

template <class T>
T& need(T* pointer, const char* name) {
  if (pointer == nullptr) {
    refuse(std::string(name) + " is a null pointer");
  }
  return *pointer;
}

// Before the first entry of a list is read: a count that was not set would read whatever lies
// behind the list.
inline void need_most(size_t count, size_t most, const char* name, const std::string& why) {
  if (count > most) {
    refuse(std::string(name) + " is " + std::to_string(count) + "; " + why);
  }
}

// No version of a struct is larger: a field that was not set is noticed.
constexpr size_t kMostStructBytes = 4096;

// Fills as much of `*out` as the caller knows.
template <class T>
void give(T* out, T value, const char* name) {
  const size_t size = need(out, name).struct_size;
  if (size < sizeof size || size > kMostStructBytes) {
    refuse(std::string(name) + "->struct_size is not set");
  }
  value.struct_size = size;
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &value, std::min(size, sizeof value));
}

// What the caller knows of `*in`, the rest 0; all 0 for a null pointer.
template <class T>
T taken(const T* in, const char* name) {
  T value{};
  if (in != nullptr) {
    if (in->struct_size < sizeof in->struct_size || in->struct_size > sizeof value) {
      refuse(std::string(name) + "->struct_size is not the size of a version that is known");
    }
    std::memcpy(static_cast<void*>(&value), in, in->struct_size);
  }
  return value;
}

}  // namespace tpu::c_api
