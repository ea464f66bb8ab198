// Deadlines by the steady clock.
#include "src/turn/deadline.hpp"

#include <fmt/format.h>

namespace tpu::driver {

Deadline deadline_in(std::chrono::nanoseconds timeout) {
  const auto now = std::chrono::steady_clock::now();
  const bool endless = timeout > std::chrono::steady_clock::time_point::max() - now;
  return endless ? std::nullopt : Deadline(now + timeout);
}

bool is_over(const Deadline& deadline) {
  return deadline && std::chrono::steady_clock::now() >= *deadline;
}

Error wait_timeout(const std::string& what, std::chrono::nanoseconds timeout) {
  return Error(ErrorCode::kTimeout, fmt::format("{} within {} s; it can be waited for again", what,
                                                std::chrono::duration<double>(timeout).count()));
}

}  // namespace tpu::driver
