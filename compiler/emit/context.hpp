// What the emission of every kernel works with, and the functions that turn planned kernels into
// commands. Kernels are emitted one after the other into one listing; overlap comes from the queues
// alone. Functions that may find too little VMEM answer false; of a loop or contraction
// nothing is emitted then.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "emit/exchange/channels.hpp"
#include "emit/command_sink.hpp"
#include "plan/op_table.hpp"
#include "emit/registers.hpp"
#include "plan/residency.hpp"
#include "vpu/vpu_gen.hpp"

namespace tpu::compiler {

struct InflightExchange;  // inflight.hpp

struct EmitContext {
  EmitContext(const Module& m, KernelProgram& k, const spec::BoardParams& b, int64_t lock_limit);
  ~EmitContext();

  void run_moves() { sink.run(memory.take_moves()); }

  const Module& module;
  KernelProgram& kernels;  // those that do not fit are cut in two
  const spec::BoardParams& board;
  const Slots slots;
  const VirtualPads pads;
  Residency memory;
  std::vector<const Value*> result_home;  // value whose home is result slot i, or null
  CommandSink sink;
  OpTable ops;
  Channels channels;
  std::map<const Value*, int64_t> counters;  // argument of a loop's body -> address in SMEM
  int regions = 0;                           // around the running kernel
  bool arguments_saved = false;
  std::unique_ptr<InflightExchange> inflight;
  const Kernel* too_large = nullptr;  // the kernel that did not fit
};

// VMEM and homes, and at once what their moves need: for kernels that mix planning and commands.
std::optional<int64_t> take(EmitContext& ctx, int64_t bytes);
void place_result(EmitContext& ctx, Buffer& out);
void finish_result(EmitContext& ctx, Buffer& out, uint32_t id);
void store(EmitContext& ctx, Buffer& b, uint32_t id);
MemRange whole_range(EmitContext& ctx, const Buffer& b, bool write);

// emit.cpp
[[nodiscard]] bool emit_kernel(EmitContext& ctx, const Kernel& k);

// Cuts kernel `k` in two: it is the first half then. False: it cannot be cut, or not here.
[[nodiscard]] bool cut_kernel(EmitContext& ctx, const Kernel& k);

// One function for each class of kernels.
[[nodiscard]] bool emit_loop(EmitContext& ctx, const Kernel& k);
[[nodiscard]] bool emit_contraction(EmitContext& ctx, const Kernel& k);
[[nodiscard]] bool emit_all_reduce(EmitContext& ctx, const Kernel& k);
[[nodiscard]] bool emit_exchange(EmitContext& ctx, const Kernel& k);
[[nodiscard]] bool emit_indexed(EmitContext& ctx, const Kernel& k);
[[nodiscard]] bool emit_pad(EmitContext& ctx, const Kernel& k);
[[nodiscard]] bool emit_while(EmitContext& ctx, const Kernel& k);
[[nodiscard]] bool emit_branch(EmitContext& ctx, const Kernel& k);
void emit_concatenate(EmitContext& ctx, const Kernel& k);
void emit_copy_out(EmitContext& ctx, const Kernel& k);
void emit_dynamic_slice(EmitContext& ctx, const Kernel& k);
void emit_dynamic_update(EmitContext& ctx, const Kernel& k);

// pad.cpp
void fill_outside(CommandSink& sink, spec::Addr corner, int64_t bytes, std::vector<CopyDim> box,
                  const std::vector<PadRange>& ranges, uint64_t pattern, uint32_t id);

// boxes.cpp: a box of a buffer, or of a value that lies nowhere, to VMEM. `dims` in elements,
// outermost first; it starts at element `first`.
void load_box(EmitContext& ctx, const Value* v, int64_t first, std::vector<CopyDim> dims,
              int64_t address, uint32_t id);

// scalar.cpp
void scalar(EmitContext& ctx, const Value* v, int reg);  // computed by the sequencer
// Scalars that lie in buffers: to SMEM, then the sequencer waits for them.
void fetch_scalars(EmitContext& ctx, const std::vector<NestAccess>& from, uint32_t id);
void read_scalar(CommandSink& sink, size_t index, Elem elem, int reg);

// indexed.cpp, combine.cpp
bool may_take(EmitContext& ctx, const Kernel& k, const Buffer& from);
[[nodiscard]] bool emit_indexed_combine(EmitContext& ctx, const Kernel& k, uint32_t id);

}  // namespace tpu::compiler
