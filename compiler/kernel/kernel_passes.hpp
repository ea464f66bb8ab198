// The passes over kernels, in order, each under its name for --dump-after and with the verifier
// behind it:
//   form          the graph cut into kernels: fusion, buckets of collectives, control flow
//   one_result    a kernel for each result (one_result.hpp), where the context asks for it
//   recompute     values that are cheaper to compute again than to keep (recompute.hpp)
//   split         loop kernels that one command cannot hold, in two
//   epilogue      loop kernels that work on the blocks of a contraction (epilogue.hpp)
//   span_taps     contractions whose K tiles may span taps, where the context asks for it
//   shard_update  updates on the part of a gradient that the core owns (shard_update.hpp)
//   early_exchanges  exchanges start early, what reads them runs late (early_exchanges.hpp), or go
//                 in pieces beside a product (pieced_exchanges.hpp)
//   late_updates  updates behind what reads the array of before (late_updates.hpp)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel/epilogue.hpp"
#include "kernel/kernels.hpp"
#include "pass/pass_manager.hpp"

namespace tpu::compiler {

struct KernelContext {
  const Module& module;
  const spec::BoardParams& board;
  int64_t piece = exchange_piece_bytes(board);  // of a streamed exchange, in bytes
  int64_t bucket_bytes = kBucketBytes;          // of an exchange beside other kernels
  bool one_result = false;                      // of the program for a loop kernel
  EpilogueOptions epilogues = {false, board.core.vmem_kib * 1024 / 4};
  bool tiles_span_taps = false;  // of a contraction
  bool least_memory = false;     // time is spent where that needs fewer bytes of HBM
  bool early_exchanges = true;   // kernels run beside exchanges
  bool pieced_exchanges = true;  // and products beside pieces of them
  bool host_beside = true;       // kernels run beside transfers with the host's memory
  // Loops that do not write results of the program; others may (result_stacks.hpp).
  std::set<const Op*> without_results = {};
  bool shard_updates = false;
  bool only_faster = false;  // updates are sharded only where the board gains by it
  ShardReport sharded = {};  // what shard_update did
};

using KernelPass = PassOf<KernelProgram>;
using KernelPasses = PassList<KernelProgram>;
using KernelPassOptions = PassHooks<KernelProgram>;

template <>
struct PassSubject<KernelProgram> {
  static constexpr std::string_view kUnit = "kernels";
  static constexpr std::string_view kPass = "kernel pass";
  static int64_t size(const KernelProgram& program);
  static int64_t number(KernelProgram& program);  // what is new is not told
  static void verify(const KernelProgram& program);
};

// Of a context, which they refer to. A pass that it does not ask for changes nothing.
KernelPasses kernel_passes(KernelContext& context);
std::vector<std::string> kernel_pass_names();
double kernel_pass_weight();  // of all together, as Pass::weight()

// Runs them all. Throws Error for an op that cannot be compiled.
KernelProgram run_kernel_passes(KernelContext& context, const KernelPassOptions& options = {});

// Cuts the graph into kernels by all passes, without sharded updates.
KernelProgram make_kernels(const Module& module, const spec::BoardParams& board);

// Of the pass `form`.
struct FormOptions {
  int64_t piece = 0;                    // bytes of a streamed piece of an exchange
  int64_t bucket_bytes = kBucketBytes;  // of an exchange
  // A constant that needs a buffer gets a kernel of its own right in front of what reads it, in
  // place of a part of an early kernel with loops of that size.
  bool late_constants = false;
  // Operations on arrays of the size of a large argument join a kernel only if that makes or reads
  // what they read.
  bool updates_apart = true;
  // Of SMEM, for the slots that loops take one by one: of arguments, and of results.
  int64_t table_words = 0;
  // Loops that do not write results of the program; null: none does.
  const std::set<const Op*>* without_results = nullptr;
};
KernelProgram form_kernels(const Module& module, const FormOptions& options);

}  // namespace tpu::compiler
