// Exceptions to status codes and texts.
#include <exception>
#include <new>

#include "client_options.hpp"
#include "handles.hpp"
#include "tpu/version.hpp"

namespace tpu::c_api {
namespace {

thread_local std::string last_message;

static_assert(TPU_F32 == static_cast<int>(driver::DType::kF32) &&
              TPU_U64 == static_cast<int>(driver::DType::kU64) &&
              TPU_C64 == static_cast<int>(driver::DType::kC64) &&
              TPU_F64 == static_cast<int>(driver::DType::kF64));

}  // namespace

// The driver's codes in their order, after TPU_OK.
tpu_status status_of(driver::ErrorCode code) {
  static_assert(static_cast<int>(driver::ErrorCode::kInvalidArgument) == 0 &&
                static_cast<int>(driver::ErrorCode::kDataLoss) + 1 == TPU_DATA_LOSS);
  return static_cast<tpu_status>(static_cast<int>(code) + 1);
}

tpu_status failed(driver::ErrorCode code, const char* text) noexcept {
  try {
    last_message = text;
  } catch (const std::bad_alloc&) {
    last_message.clear();
  }
  return status_of(code);
}

tpu_status failed_by_exception() noexcept {
  try {
    throw;
  } catch (const driver::Error& error) {
    return failed(error.code(), client::text_of(error).c_str());
  } catch (const exe::ExecutableError& error) {
    return failed(driver::ErrorCode::kInvalidArgument, error.what());
  } catch (const std::bad_alloc&) {
    return failed(driver::ErrorCode::kResourceExhausted, "the host is out of memory");
  } catch (const std::exception& error) {
    return failed(driver::ErrorCode::kInternal, client::text_of(error).c_str());
  } catch (...) {
    return failed(driver::ErrorCode::kInternal,
                  "internal: an exception of unknown type was thrown");
  }
}

void refuse(const std::string& text) {
  throw driver::Error(driver::ErrorCode::kInvalidArgument, text);
}

}  // namespace tpu::c_api

const char* tpu_version(void) { return tpu::driver::kVersion.data(); }

const char* tpu_status_name(tpu_status status) {
  if (status == TPU_OK) {
    return "Ok";
  }
  return tpu::driver::error_code_name(
      static_cast<tpu::driver::ErrorCode>(static_cast<int>(status) - 1));
}

const char* tpu_error_message(void) { return tpu::c_api::last_message.c_str(); }
