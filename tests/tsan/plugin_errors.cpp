// What the plugin's runtime takes from errors.cpp, which belongs to the handles of PJRT and to the
// options of the environment: these are not in programs under the thread sanitizer.
#include <exception>

#include "errors.hpp"

namespace tpu::pjrt {

void throw_invalid(const std::string& text) {
  throw driver::Error(driver::ErrorCode::kInvalidArgument, text);
}

driver::Error error_of_exception() {
  try {
    throw;
  } catch (const driver::Error& error) {
    return error;
  } catch (const std::exception& error) {
    return {driver::ErrorCode::kInternal, error.what()};
  }
}

}  // namespace tpu::pjrt
