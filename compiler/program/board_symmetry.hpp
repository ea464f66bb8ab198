// Whether all boards of a pod do the same, so that one of them can be simulated for all
// (spec/command/fold.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "command/fold.hpp"

namespace tpu::compiler {

struct BoardComparison {
  std::string difference;  ///< where the boards differ; empty if they do not
  std::string left_out;    ///< what was not compared, for people; empty: nothing
};

struct ComparisonLimits {
  uint64_t core = 20'000'000;  ///< instructions and commands that are compared of a core
  uint64_t pod = 400'000'000;  ///< of all cores; then no further board is compared
};

/// Whether all boards do the same. `image`: of encode_image, for all cores of the pod in order.
/// Runs the scalar instructions of all cores as a run without data does, up to a branch on data
/// that is a fault there: they must issue the same commands to other cores, to cores at the same
/// place of their boards, and the boards that they go to must be shifted, or mirrored (by exclusive
/// or of the coordinates), by as much from each board. Four boards are compared with the first one
/// in any case, the others within the limits.
BoardComparison compare_boards(std::span<const std::byte> image, const spec::Fold& fold,
                               const ComparisonLimits& limits = {});

}  // namespace tpu::compiler
