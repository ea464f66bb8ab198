// indexed_combine: targets lie in VMEM as a whole; updates that do not come piece by piece.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "plan/indexed/combine_body.hpp"
#include "plan/residency.hpp"

namespace tpu::compiler {

struct CombinePlan {
  struct Target {
    int64_t address = 0, bytes = 0;
  };
  struct Updates {
    spec::Addr from{};
    int64_t slot = -1;  // VMEM of a piece; -1: they lie there whole
    int64_t unit = 4;   // of an element
  };

  std::shared_ptr<const CombineBody> body;
  std::vector<Target> targets;
  std::vector<Updates> updates;
  spec::Addr list{};
  int64_t width = 0;  // elements of a window
  int64_t records = 0, piece_records = 0;
};

// Nothing: too little VMEM. Moves are noted in `memory`; operands and results stay pinned. Throws
// Error for a body that no vector kernel computes.
std::optional<CombinePlan> plan_combine(const Kernel& k, const spec::BoardParams& board,
                                        Residency& memory, uint32_t op_id);

}  // namespace tpu::compiler
