// Planning of kernels. Nothing is emitted here: a kernel becomes a step or, if it does not fit into
// VMEM even in its smallest tiles, nothing; then buffers, VMEM and homes are as before.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "plan/moving_address.hpp"
#include "plan/op_table.hpp"
#include "plan/schedule.hpp"

namespace tpu::compiler {

// A counted loop whose body is planned.
struct OpenLoop {
  const Kernel* kernel = nullptr;
  int64_t counter_smem = -1;
};

// What the planning of every kernel works with.
struct PlanContext {
  // `hbm_bytes`: that the program may use.
  PlanContext(const Module& m, KernelProgram& k, const spec::BoardParams& b, int64_t hbm_bytes);

  const Module& module;
  KernelProgram& kernels;  // those that do not fit are cut in two
  const spec::BoardParams& board;
  const Slots slots;
  const VirtualPads pads;
  Residency memory;
  std::vector<const Value*> result_home;  // value whose home is result i, or null
  OpTable ops;
  bool arguments_saved = false;
  MovingAddresses moving;
  std::vector<OpenLoop> loops;        // counted ones around the kernel
  int regions = 0, counters = 0;      // around the kernel: regions, and loops that are counted
  const Kernel* too_large = nullptr;  // the part that did not fit
  std::map<const Op*, int64_t> sent;  // of transfers under way to the host: their copies in HBM
  std::set<const Kernel*> joined;     // products that the step of a contraction before them does
};

// The step of a kernel, or of the part of it that a step before it has left (Step::rest).
// Nothing: see `too_large`.
std::optional<Step> plan_kernel(PlanContext& ctx, const Kernel& k);

// True for a contraction with several epilogues, which needs more than memory to fit.
bool has_chain(const Kernel& k);

// `k` is planned next.
void enter_kernel(PlanContext& ctx, const Kernel& k);

// Cuts kernel `k` in two: it is the first half then. False: it cannot be cut.
[[nodiscard]] bool cut_kernel(PlanContext& ctx, const Kernel& k);

// A step for what has been placed so far: the moves noted go before it.
Step begin_step(PlanContext& ctx, const Kernel& k);
// Behind the kernel's last decision: later moves go after its commands.
void end_step(PlanContext& ctx, Step& step);
// Also notes where the values of a kernel lie that the step does too.
void note_places(PlanContext& ctx, const Kernel& k, Places& places);

// One function for each class of kernels: plan_loops.cpp, plan_moves.cpp,
// plan_control.cpp, exchange/, indexed/.
std::optional<Step> plan_loop_kernel(PlanContext& ctx, const Kernel& k);
std::optional<Step> plan_contraction(PlanContext& ctx, const Kernel& k);
int64_t pad_pattern_elements(const Type& type);  // of a computed padding value
std::optional<Step> plan_pad(PlanContext& ctx, const Kernel& k);
std::optional<Step> plan_concatenate(PlanContext& ctx, const Kernel& k);
std::optional<Step> plan_copy_out(PlanContext& ctx, const Kernel& k);
std::optional<Step> plan_host(PlanContext& ctx, const Kernel& k);
std::optional<Step> plan_all_reduce(PlanContext& ctx, const Kernel& k);
std::optional<Step> plan_exchange(PlanContext& ctx, const Kernel& k);
std::optional<Step> plan_indexed_kernel(PlanContext& ctx, const Kernel& k);
std::optional<Step> plan_dynamic(PlanContext& ctx, const Kernel& k);
// Slices of stacked arrays that kernels of the innermost loop read and write where they are
// (indexed/moving_slice.cpp). True: no kernel copies the slice `k`.
bool read_in_place(PlanContext& ctx, const Kernel& k);
// Else a slice of a stack of arguments is a copy of this iteration's argument.
void copy_argument(PlanContext& ctx, const Kernel& k);
// A result that the loop writes, one in each iteration, is copied there unless it was made there.
void copy_loop_result(PlanContext& ctx, const Kernel& k);
// Before the body of the loop is planned: what only goes into a part of a carried array is made
// there.
void write_in_place(PlanContext& ctx, const KernelProgram& body);

// With all kernels of its regions. What does not fit there is answered by planning all of them
// again: with fewer values locked, or that kernel cut.
std::optional<Step> plan_control(PlanContext& ctx, const Kernel& k);

}  // namespace tpu::compiler
