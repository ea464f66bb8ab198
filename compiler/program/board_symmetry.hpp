// Whether all boards of a pod do the same, so that one of them can be simulated for all
// (spec/command/fold.hpp).
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "command/fold.hpp"

namespace tpu::compiler {

/// Where the boards differ; empty if they do not. `image`: of encode_image, for all cores of the
/// pod in order. Runs the scalar instructions of the cores of the first board and of some others:
/// they must issue the same commands to other cores, to cores at the same place of their boards,
/// and the boards that they go to must be shifted, or mirrored (by exclusive or of the
/// coordinates), by as much from each board. Up to a branch that depends on data.
std::string board_difference(std::span<const std::byte> image, const spec::Fold& fold);

}  // namespace tpu::compiler
