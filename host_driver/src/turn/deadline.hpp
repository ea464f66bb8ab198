// Ends of waits by the wall clock.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "tpu/error.hpp"

namespace tpu::driver {

/// When a wait ends although what it waits for is not there; empty: it does not.
using Deadline = std::optional<std::chrono::steady_clock::time_point>;

/// That much wall-clock time from now on; a timeout that the clock cannot hold is none.
Deadline deadline_in(std::chrono::nanoseconds timeout);
/// The deadline has come.
bool is_over(const Deadline& deadline);
/// The error of a wait that the deadline has ended.
Error wait_timeout(const std::string& what, std::chrono::nanoseconds timeout);

}  // namespace tpu::driver
