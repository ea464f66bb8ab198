// The program file whose processes have the boards of a pod.
#pragma once

#include <string>
#include <vector>

namespace tpu::driver::worker {

/// What `tpuboard` and `tpuboard_server LIBRARY` are called with: serve_boards_of_maker() follows.
inline constexpr const char* kMakerCommand = "serve-maker";

/// Words of a command that starts it: tpuboard_server with the library that has this code, which
/// is beside the library of a plugin, or else tpuboard: beside the file with this code, in the
/// folder bin beside its folder, or in PATH. Throws Error: FailedPrecondition, with the places.
std::vector<std::string> worker_program();

}  // namespace tpu::driver::worker
