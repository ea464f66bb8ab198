// The figures of a job as text for people.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include "job/snapshot.hpp"

namespace tpu::monitor {

/// Lines, each with its end. `age`: seconds since the report was made.
std::string view(const Report& report, double age = 0);

/// Shows reports one after the other: on a terminal views over each other, elsewhere a line of JSON
/// each. Nothing, unless it is wanted.
std::function<void(const Report&)> live_view(std::FILE* to, bool wanted = true);

}  // namespace tpu::monitor
