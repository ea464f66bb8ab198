// Cycles of a program: the estimate that stands in the executable, and the rough costs of single
// commands and transfers by which kernels and plans are chosen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "program/listing.hpp"
#include "program/timed_command.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

struct ProgramEstimate {
  uint64_t cycles = 0;
  Work work;  // of the first core
};

// Cycles and work of one step. The cycles are as `tpuboard run` prints them by core
// (sim_cycles_per_core): from the start of the sequencer to the end of the program, on the core
// that takes longest. Without the launch by driver and firmware, and with no other traffic on the
// board. `image`: of encode_image. The timed machine (timed_gang.hpp) runs it with the costs of the
// model, so one core, and all cores of a program of up to 2,000,000 commands, give the model's
// cycles (of some of the board's cores, but for some tens of cycles by which their harts start
// apart); beyond that one core stands for all where they do the same. Where data decide, it is
// assumed: a loop runs once; of alternatives the last one of the code is taken at first, then the
// one in front of it, in turn; no entry of a list is left out. Of a program too long to be
// simulated: the cycles and work of its beginning. `cores`: of the board, by partition.
ProgramEstimate estimate_program(std::span<const std::byte> image, const std::vector<int>& cores,
                                 const spec::BoardParams& board);

// Cycles for which a command keeps its queue: without waits, strides of lanes, granules and what
// other queues take of the bandwidth.
uint64_t busy_cycles(const Command& command, const Listing& listing,
                     const spec::BoardParams& board);

// Bytes that a core's share of its chip's HBM moves in a cycle.
double hbm_bytes_per_cycle(const spec::BoardParams& board);

// Cycles of `bytes` through a core's share of its chip's HBM.
uint64_t hbm_cycles(const spec::BoardParams& board, int64_t bytes);

// Bytes that a chip's PCIe link moves in a core cycle, each direction.
double pcie_bytes_per_cycle(const spec::BoardParams& board);

// Cycles of `bytes` through the port between a core and the links.
uint64_t port_cycles(const spec::BoardParams& board, int64_t bytes);

}  // namespace tpu::compiler
