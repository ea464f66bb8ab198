// What the emission of every kernel works with, and the functions that turn steps
// (plan/schedule.hpp) into commands. Steps are emitted one after the other into one listing;
// overlap comes from the queues alone. Nothing here changes the residency but the end of the
// exchange in flight.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "emit/command_sink.hpp"
#include "emit/exchange/channels.hpp"
#include "emit/fetched_scalars.hpp"
#include "emit/registers.hpp"
#include "plan/plan.hpp"
#include "vpu/vpu_gen.hpp"

namespace tpu::compiler {

struct InflightExchange;  // exchange/inflight.hpp

struct EmitContext {
  EmitContext(PlanContext& p, const std::vector<int>& cores);  // of the board, by partition
  ~EmitContext();

  PlanContext& plan;  // of the driver, and of the exchange in flight
  const Module& module;
  const spec::BoardParams& board;
  const VirtualPads& pads;
  CommandSink sink;
  Channels channels;
  std::map<const Value*, int64_t> counters;  // argument of a loop's body -> address in SMEM
  FetchedScalars fetched;                    // of the piece
  std::unique_ptr<InflightExchange> inflight;
  bool overlap = true;  // commands of one kernel or iteration may run beside those of the next
  std::vector<std::string> loop_copies;  // see EmittedProgram
  std::set<uint32_t> leaving_early;      // see EmittedProgram
};

// emit.cpp
void emit_step(EmitContext& ctx, const Step& step);

// The commands of a step: one function for each kind of plan.
void emit_loop(EmitContext& ctx, const Step& step, const LoopPlan& plan);
void emit_contraction(EmitContext& ctx, const Step& step, const DotPlan& plan);
void emit_pad(EmitContext& ctx, const Step& step, const PadPlan& plan);
void emit_concatenate(EmitContext& ctx, const Step& step);

void emit_host(EmitContext& ctx, const Step& step, const HostPlan& plan);
void emit_while(EmitContext& ctx, const Step& step, const WhilePlan& plan);
void emit_branch(EmitContext& ctx, const Step& step, const BranchPlan& plan);
void emit_packed(EmitContext& ctx, const Step& step, const std::vector<PackedPlan>& plans);
void emit_direct(EmitContext& ctx, const Step& step, const std::vector<DirectPlan>& plans);
void emit_indexed(EmitContext& ctx, const Step& step, const IndexedPlan& plan);
void emit_combine(EmitContext& ctx, const Step& step, const CombinePlan& plan);
void emit_dynamic(EmitContext& ctx, const Step& step, const DynamicPlan& plan);

// pad.cpp
void fill_outside(CommandSink& sink, spec::Addr corner, int64_t bytes, std::vector<CopyDim> box,
                  const std::vector<PadRange>& ranges, uint64_t pattern, uint32_t id);

// boxes.cpp: a box of a buffer, or of a value that lies nowhere, to VMEM. `dims` in elements,
// outermost first; it starts at element `first`.
void load_box(EmitContext& ctx, const Places& places, const Value* v, int64_t first,
              std::vector<CopyDim> dims, int64_t address, uint32_t id);

// scalar.cpp
void scalar(EmitContext& ctx, const Value* v, int reg);  // computed by the sequencer
// Scalars that lie in buffers: those that are not in SMEM yet go there, and the sequencer waits for
// them. Returns where each is, by its index.
std::map<size_t, int64_t> fetch_scalars(EmitContext& ctx, const std::vector<ScalarPlace>& from,
                                        uint32_t id);
void read_scalar(CommandSink& sink, int64_t address, Elem elem, int reg);

}  // namespace tpu::compiler
