// What kernels do, settled before their commands are made. A step is one kernel (or a part of it,
// see `rest`): its plan, the moves before and behind its commands, and where the values that it
// touches lie meanwhile. Emission reads nothing else of the residency, which has gone on by then.
#pragma once

#include <cstdint>
#include <map>
#include <variant>
#include <vector>

#include "plan/dot_plan.hpp"
#include "plan/exchange/direct_plan.hpp"
#include "plan/exchange/packed_plan.hpp"
#include "plan/exchange/stream_plan.hpp"
#include "plan/indexed/combine_plan.hpp"
#include "plan/indexed/dynamic_plan.hpp"
#include "plan/indexed/indexed_plan.hpp"
#include "plan/loop_plan.hpp"
#include "plan/residency.hpp"

namespace tpu::compiler {

using Places = std::map<const Value*, Placement>;  // for look-up only

// The moves are all.
struct MovesOnly {};

// A class whose emission still plans for itself: it uses and changes the residency.
struct Unplanned {};

struct FillPlan {
  struct Fill {
    spec::Addr to;
    int64_t elem_bytes = 1, count = 0;
    uint64_t pattern = 0;
  };
  std::vector<Fill> fills;
};

// The operand's box by one copy, what is around it by fills.
struct PadPlan {
  int64_t pattern = -1;  // VMEM where a computed padding value is repeated
};

// Operands side by side.
struct ConcatenatePlan {};

struct Step {
  const Kernel* kernel = nullptr;
  uint32_t op_id = 0;
  std::vector<Move> before, after;
  Places places;
  std::variant<MovesOnly, Unplanned, LoopPlan, FillPlan, DotPlan, PadPlan, ConcatenatePlan,
               StreamPlan, std::vector<PackedPlan>, std::vector<DirectPlan>, IndexedPlan,
               CombinePlan, DynamicPlan>
      plan;
  const Kernel* rest = nullptr;  // part of the kernel that the next step does
};

// The steps of a sequence of kernels.
struct Schedule {
  std::vector<Step> steps;
};

}  // namespace tpu::compiler
