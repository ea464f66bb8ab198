// Verilator's hooks for text and for $error, see assertions.hpp.
#include "run/assertions.hpp"

#include <verilated.h>

#include <cstdarg>
#include <cstdio>
#include <string_view>
#include <utility>

#include "run/verilator_text.h"

namespace tpu::rtl {
namespace {

thread_local std::string said;  // by an assertion that is about to stop
thread_local FailedAssertions failed;

constexpr std::string_view kError = "%Error: ";

}  // namespace

void use_context(VerilatedContext& context) {
  if (Verilated::threadContextp() != &context) {
    Verilated::threadContextp(&context);
  }
}

std::string FailedAssertions::text() const {
  return count <= 1 ? first : first + " (and " + std::to_string(count - 1) + " more)";
}

FailedAssertions take_failed_assertions() {
  return failed.count == 0 ? FailedAssertions{} : std::exchange(failed, {});
}

}  // namespace tpu::rtl

// Text of $error waits for the stop that follows it; all else goes to stderr, since stdout is the
// program's.
void tpu_verilator_text(const char* format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const std::string_view line = text;
  const size_t error = line.find(tpu::rtl::kError);
  if (!line.starts_with('[') || error == std::string_view::npos) {
    std::fputs(text, stderr);
    return;
  }
  tpu::rtl::said = line.substr(error + tpu::rtl::kError.size());
  while (tpu::rtl::said.ends_with('\n')) {
    tpu::rtl::said.pop_back();
  }
}

void vl_stop(const char* file, int line, const char* /*hierarchy*/) {
  if (tpu::rtl::failed.count++ == 0) {
    tpu::rtl::failed.first = tpu::rtl::said.empty()
                                 ? std::string(file) + ":" + std::to_string(line) + ": $stop"
                                 : tpu::rtl::said;
  }
  tpu::rtl::said.clear();
}
