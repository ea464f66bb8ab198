// The passes over kernels, in order, each under its name for --dump-after and with the verifier
// behind it:
//   form          the graph cut into kernels: fusion, buckets of collectives, control flow
//   one_result    a kernel for each result (one_result.hpp), where the context asks for it
//   recompute     values that are cheaper to compute again than to keep (recompute.hpp)
//   split         loop kernels that one command cannot hold, in two
//   epilogue      loop kernels that work on the blocks of a contraction (epilogue.hpp)
//   span_taps     contractions whose K tiles may span taps, where the context asks for it
//   shard_update  updates on the part of a gradient that the core owns (shard_update.hpp)
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel/kernels.hpp"

namespace tpu::compiler {

struct KernelContext {
  const Module& module;
  const spec::BoardParams& board;
  int64_t piece = exchange_piece_bytes(board);  // of a streamed exchange, in bytes
  int64_t bucket_bytes = kBucketBytes;          // of an exchange beside other kernels
  bool one_result = false;                      // of the program for a loop kernel
  bool epilogue_columns = false;                // see fuse_epilogues()
  bool tiles_span_taps = false;                 // of a contraction
  bool shard_updates = false;
  bool only_faster = false;  // updates are sharded only where the board gains by it
  ShardReport sharded = {};  // what shard_update did
};

struct KernelPass {
  std::string name;
  void (*run)(KernelProgram& program, KernelContext& context);
};

const std::vector<KernelPass>& kernel_passes();

// Runs them all; `after` is called behind each. Throws Error for an op that cannot be compiled.
KernelProgram run_kernel_passes(
    KernelContext& context,
    const std::function<void(const std::string& pass, const KernelProgram&)>& after = {});

// Cuts the graph into kernels by all passes, without sharded updates.
KernelProgram make_kernels(const Module& module, const spec::BoardParams& board);

// The pass `form`. `piece`: bytes of a streamed piece of an exchange; `bucket_bytes`: of one.
KernelProgram form_kernels(const Module& module, int64_t piece,
                           int64_t bucket_bytes = kBucketBytes);

}  // namespace tpu::compiler
