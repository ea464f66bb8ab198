// Names of the performance counters of a core: CoreCounters::all by name.
#pragma once

#include <span>
#include <string_view>

namespace tpu::driver {

/// In the order of CoreCounters::all (spec/regs/perf.toml), in lower case; each ends with a zero. A
/// core of a board with fewer matrix units has the first of them alone.
std::span<const std::string_view> counter_names();

}  // namespace tpu::driver
