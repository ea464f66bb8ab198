// Which process has which device of a board that several share. TPU_PROCESS_BOUNDS and
// TPU_CHIPS_PER_PROCESS_BOUNDS cut the torus into rectangles, processes counting x first. Without
// them, processes take equal parts in the order of the real machine's hosts, which have 2x2 chips
// each: of eight devices and four processes, process 1 has TPU:2 and TPU:3.
#pragma once

#include <vector>

#include "processes/variables.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::pjrt {

/// By device the process that has it.
using DeviceOwners = std::vector<int>;

/// Throws driver::Error (InvalidArgument) for processes that cannot share the board equally, and
/// for bounds that are not its own.
DeviceOwners read_owners(const Variable& variable, const spec::BoardParams& board, int processes);
/// Of this process's environment.
DeviceOwners owners_of_environment(const spec::BoardParams& board, int processes);

std::vector<int> devices_of_process(const DeviceOwners& owners, int process);

/// Its number on its host, from 0.
int64_t chip_on_host(int64_t chip, const spec::BoardParams& board);

}  // namespace tpu::pjrt
