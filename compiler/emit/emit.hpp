// Kernels to a listing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "kernel/kernels.hpp"
#include "plan/scratch.hpp"
#include "program/listing.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

struct EmittedProgram {
  Listing listing;
  std::vector<exe::OpInfoT> ops;
  std::vector<std::vector<std::byte>> constants;
  std::vector<int> result_slots;  // binding slot of each result
  uint64_t matmul_flops = 0;
  int64_t vmem_peak = 0;
  int first_remote_semaphore = 0;
  Scratch scratch;
  std::set<uint32_t> leaving_early;      // op ids of exchanges (early_departures.hpp)
  std::vector<std::string> loop_copies;  // large arrays that a loop copies each time, as text

  // What HBM holds, for readers.
  std::string memory() const { return memory_report(listing.slots, scratch, ops); }
};

// How kernels follow each other.
struct EmitRules {
  bool overlap = true;      // commands of one may run beside those of its neighbours
  bool keep_values = true;  // a value may stay in VMEM from one to another
  int64_t hbm_bytes = 0;    // of a core that the program may use; 0: all
};

// Kernels whose tiles do not fit into VMEM are cut in two until they do. Throws Error if the
// smallest tile of a kernel does not fit, or if the program is too long. `cores`: of the board, by
// partition. `progress` is called with the share of the kernels that are behind.
EmittedProgram emit_program(const Module& module, KernelProgram& kernels,
                            const spec::BoardParams& board, const std::vector<int>& cores,
                            const std::function<void(double done)>& progress = {},
                            const EmitRules& rules = {});

}  // namespace tpu::compiler
