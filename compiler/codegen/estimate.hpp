// Estimated cycles of a listing with semaphores: every command takes its cost formula, queues are
// in order, waits meet signals. Bandwidth is not shared with the other cores, and what another core
// sends is expected when this core sends the like.
#pragma once

#include <cstdint>
#include <string>

#include "codegen/listing.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

uint64_t estimate_cycles(const Listing& listing, const spec::BoardParams& board);

// One line per item: index, queue, mnemonic, waits, signals. For dumps.
std::string print(const Listing& listing);

}  // namespace tpu::compiler
