// The handler only notes the signal; everything else happens between two steps.
#include "cli/stop_signals.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>

namespace tpu::driver {
namespace {

constexpr std::array<int, 3> kStops = {SIGINT, SIGTERM, SIGHUP};

std::atomic<int> first_signal = 0;
std::array<std::atomic<bool>, kStops.size()> handled{};  // what the caller ignores stays ignored
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a signal handler may not take locks");

void note(int signal) {
  // Only what is safe inside a signal handler.
  for (size_t i = 0; i < kStops.size(); ++i) {
    if (handled[i].load()) {
      ::signal(kStops[i], SIG_DFL);
    }
  }
  first_signal.store(signal);
  constexpr char kText[] =
      "\ntpuboard: stopping after the running step; the same signal again exits immediately\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, sizeof(kText) - 1);
}

}  // namespace

StopSignals::StopSignals() {
  first_signal.store(0);
  const auto take = [&](int signal, void (*handler)(int)) {
    Old old{.signal = signal, .action = {}};
    if (::sigaction(signal, nullptr, &old.action) != 0 || old.action.sa_handler == SIG_IGN) {
      return false;
    }
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
    old_.push_back(old);
    return true;
  };
  for (size_t i = 0; i < kStops.size(); ++i) {
    handled[i].store(false);
    handled[i].store(take(kStops[i], note));
  }
  take(SIGPIPE, SIG_IGN);
}

StopSignals::~StopSignals() {
  for (const Old& old : old_) {
    ::sigaction(old.signal, &old.action, nullptr);
  }
}

int StopSignals::received() { return first_signal.load(); }

const char* signal_name(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "a signal";
  }
}

}  // namespace tpu::driver
