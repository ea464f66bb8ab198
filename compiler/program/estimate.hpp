// Estimated cycles of a listing with semaphores: every command takes its cost formula, queues are
// in order, waits meet signals. All cores do the same at the same time: a core has its share of its
// chip's HBM for all its queues together, and its port to the links (whose load is equal in both
// directions, so that the port is the narrower one); what another core sends is expected when this
// core sends the like.
#pragma once

#include <cstdint>
#include <string>

#include "program/listing.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

// Cycles for which a command keeps its queue, without waits.
uint64_t busy_cycles(const Command& command, const Listing& listing,
                     const spec::BoardParams& board);

// Cycles of `bytes` through a core's share of its chip's HBM.
uint64_t hbm_cycles(const spec::BoardParams& board, int64_t bytes);

// Cycles of `bytes` through the port between a core and the links.
uint64_t port_cycles(const spec::BoardParams& board, int64_t bytes);

uint64_t estimate_cycles(const Listing& listing, const spec::BoardParams& board);

// One line per item: index, queue, mnemonic, waits, signals. For dumps.
std::string print(const Listing& listing);

}  // namespace tpu::compiler
