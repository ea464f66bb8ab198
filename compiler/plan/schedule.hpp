// What kernels do, settled before their commands are made. A step is one kernel (or a part of it,
// see `rest`): its plan, the moves before and behind its commands, and where the values that it
// touches lie meanwhile, unless its plan holds addresses alone. Emission reads nothing else of the
// residency, which has gone on by then.
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

namespace tpu::compiler {

using Places = std::map<const Value*, Placement>;  // for look-up only

// The moves are all.
struct MovesOnly {};

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

// A transfer with the host, of what lies here when the moves before it are done.
struct HostPlan {
  spec::Addr place;
  int64_t bytes = 0;
};

struct Step;

// The steps of a sequence of kernels.
struct Schedule {
  std::vector<Step> steps;
};

// A region of a while, if or case: what it does, then its results to the homes of its owner's.
struct RegionPlan {
  Schedule schedule;
  std::vector<Move> yield;
  std::vector<size_t> copied;  // results that were made elsewhere than in their homes
};

struct WhilePlan {
  bool runs = true;  // false: a counted loop without iterations
  // Counted: where the sequencer keeps the counter, and its value for kernels (-1: none reads it).
  int64_t counter_smem = -1, counter_vmem = -1;
  std::vector<Move> counter_moves;
  // Else: the condition, and where its result lies.
  Schedule condition;
  std::vector<ScalarPlace> test;
  RegionPlan body;
};

struct BranchPlan {
  std::vector<ScalarPlace> predicate;  // empty: the sequencer computes it
  std::vector<Move> settled;           // when the predicate has been read
  std::vector<RegionPlan> arms;
};

struct Step {
  const Kernel* kernel = nullptr;
  uint32_t op_id = 0;
  std::vector<Move> before, after;
  Places places;
  std::variant<MovesOnly, LoopPlan, FillPlan, DotPlan, PadPlan, ConcatenatePlan, IndexedPlan,
               CombinePlan, DynamicPlan, std::vector<PackedPlan>, StreamPlan,
               std::vector<DirectPlan>, HostPlan, WhilePlan, BranchPlan>
      plan;
  const Kernel* rest = nullptr;  // part of the kernel that the next step does
};

}  // namespace tpu::compiler
