// An all_reduce of whole pieces, streamed from home to home while other kernels run beside it.
//
// Over 64 cores and more it has three phases, one behind the other. Down: the first stages, with
// the partners next to a core, leave an eighth of each piece. Across: the other stages, of pieces
// that are put together from these parts. Back: the first stages again. So messages over the longer
// ways are as large as those to neighbors, and few: each takes a latency of the links, and a place
// among the transfers in flight. Between the phases the parts are at the end of the result's home,
// which the way back, in ascending order, reaches behind the part that it needs.
#pragma once

#include <optional>

#include "plan/exchange/halving_plan.hpp"

namespace tpu::compiler {

struct StreamPlan : HalvingPlan {
  const Kernel* kernel = nullptr;
  bool overlaps = true;             // else it ends before the next kernel is planned
  std::vector<HalvingPlan> phases;  // behind this one; they share its VMEM
};

// What a streamed exchange is planned from.
struct StreamSite {
  Exchange exchange;
  int64_t piece_bytes = 0;
  const Kernel* next = nullptr;  // kernel that may run beside it; null: none
  bool overlaps = true;          // not inside regions: nothing may be in flight at a boundary
};

// Nothing: too little VMEM. What the exchange uses is held until end_streamed.
std::optional<StreamPlan> plan_streamed(const Kernel& k, const StreamSite& site, Residency& memory,
                                        uint32_t op_id);
// Where the operand of a piece lies by now: other kernels move it.
void find_operand(Residency& memory, StreamPlan& plan, int64_t piece);
// Its results are at home; its VMEM goes back. An exchange that does not overlap has ended when
// it is planned.
void end_streamed(Residency& memory, const StreamPlan& plan);

// True if `k` cannot run beside the exchange `streamed`, whose buffers are held: it reads what the
// exchange makes, or writes memory that it uses.
bool must_follow(const Kernel& k, const Kernel& streamed, Residency& memory);

}  // namespace tpu::compiler
