// "<seconds since the log was opened> <thread> <call> <microseconds> [error]"
#include "call_log.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "errors.hpp"

namespace tpu::pjrt {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<std::FILE*> log_file{nullptr};
const Clock::time_point log_begin = Clock::now();

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

void CallLog::open(const std::string& to) {
  if (to.empty() || log_file.load() != nullptr) {
    return;
  }
  std::FILE* file = to == "stderr" ? stderr : std::fopen(to.c_str(), "we");
  if (file == nullptr) {
    throw_invalid("environment variable TPUBOARD_LOG: " + to + " cannot be written");
  }
  std::setvbuf(file, nullptr, _IOLBF, 0);
  log_file = file;
}

CallLog::Line::Line(const char* name) : name_(name) {
  if (log_file.load(std::memory_order_relaxed) != nullptr) {
    begin_ = Clock::now();
  }
}

void CallLog::Line::end(const PJRT_Error* error) const noexcept {
  std::FILE* file = log_file.load(std::memory_order_relaxed);
  if (file == nullptr || begin_ == Clock::time_point()) {
    return;
  }
  const Clock::time_point now = Clock::now();
  std::fprintf(file, "%.6f %ld %s %.1f us%s%s\n", seconds(now - log_begin), syscall(SYS_gettid),
               name_, 1e6 * seconds(now - begin_), error != nullptr ? " error: " : "",
               error != nullptr ? error->message.c_str() : "");
}

void CallLog::note(const std::string& text) noexcept {
  std::FILE* file = log_file.load(std::memory_order_relaxed);
  if (file != nullptr) {
    std::fprintf(file, "%.6f %ld   %s\n", seconds(Clock::now() - log_begin), syscall(SYS_gettid),
                 text.c_str());
  }
}

}  // namespace tpu::pjrt
