// What boards in several processes cannot do.
#pragma once

#include <cstdint>
#include <string>

#include "tpu/sim_options.hpp"

namespace tpu::driver::worker {

inline constexpr uint32_t kMostRanks = 64;  ///< processes of a pod

/// Throws Error: Unimplemented for options that need all boards in one process, FailedPrecondition
/// for a transport that has no boards.
void check_part(const spec::SimOptions& sim, const std::string& transport);

}  // namespace tpu::driver::worker
