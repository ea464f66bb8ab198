// dynamic_slice and dynamic_update_slice: one box at an address that the sequencer computes. An
// update happens in place if nobody reads the operand afterwards, else in a copy.
#pragma once

#include <vector>

#include "plan/copy_dim.hpp"
#include "plan/scalars.hpp"

namespace tpu::compiler {

// A start that is not known: clamped to [0, limit], then times `stride`.
struct DynamicStart {
  const Value* value = nullptr;
  int64_t limit = 0, stride = 0;  // stride: bytes
  int scalar = -1;                // index of what is fetched; -1: the sequencer computes it
};

struct DynamicPlan {
  spec::Addr src{}, dst{};  // of the box, at the starts that are known
  bool update = false;      // dst depends on the starts, else src
  bool nothing = false;     // an update of no element
  int64_t copied = 0;       // bytes of an operand that stays as it is: the update is made in a copy
  MemRange window;          // that the other starts may reach
  std::vector<CopyDim> dims;
  int64_t unit = 4;
  std::vector<ScalarPlace> scalars;
  std::vector<DynamicStart> starts;
};

// Moves are noted in `memory`; operands and result stay pinned.
DynamicPlan plan_dynamic_slice(const Kernel& k, Residency& memory);
DynamicPlan plan_dynamic_update(const Kernel& k, Residency& memory, uint32_t op_id);

}  // namespace tpu::compiler
