// Weight-update sharding on kernels: the elementwise kernels behind a streamed all_reduce run on
// the part of each piece that this core owns after the halving stages.
//   before   all_reduce g; loop m', v', p' = adam(g, m, v, p)
//   after    all_reduce g { update m', v' (sharded), p' (gathered) }
// What only such updates read and write (m, v) stays sharded: each core keeps its own parts up to
// date, and the executable says which. What others read (p) is gathered by the way back of the
// exchange in place of the sum. Elements behind the last whole piece are updated on all cores.
//
// A sum that something else needs as a whole (a norm, a result) stays on all cores. Its update is
// an exchange of its own behind it, without a sum: each core updates its parts, and results travel
// back. Such updates go together where nothing is between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernel/exchange.hpp"
#include "tpu/spec/board_params.hpp"
#include "vpu/nest.hpp"

namespace tpu::compiler {

struct KernelProgram;

// A loop kernel that runs part by part.
struct UpdateKernel {
  std::vector<const Op*> ops;
  Nest nest;
  std::vector<const Value*> writes;
};

// All that follows one summed value.
struct Update {
  size_t value = 0;            // index into reads and writes of the all_reduce kernel
  const Value* sum = nullptr;  // null: it is complete, an operand as others
  std::vector<UpdateKernel> kernels;
  std::vector<const Value*> gathered, sharded;  // results; other values are temporary
};

// A result of which each core holds its own parts of the first `pieces` pieces, and the rest.
struct ShardedState {
  size_t argument = 0, result = 0;
  int64_t piece_elements = 0, pieces = 0;
  Exchange exchange;
};

struct ShardReport {
  int64_t bytes = 0;  // of gradients whose update is sharded
  std::vector<std::string> notes;
};

// Rewrites the program where it is legal, or only where it is faster too; the notes say what was
// done and what could not be.
ShardReport shard_updates(KernelProgram& program, const Module& module,
                          const spec::BoardParams& board, bool only_faster);

// Runs of elements and the core that holds each, in order, for the executable.
struct OwnedRun {
  int64_t elements = 0;
  int64_t core = 0;
};
std::vector<OwnedRun> owned_runs(const ShardedState& state, int64_t elements, int64_t cores);

}  // namespace tpu::compiler
