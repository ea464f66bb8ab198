// Which instructions host code has.
#include "hart/hart_code.hpp"

namespace tpu::model {

bool code_has(HartOp op) {
  switch (op) {
    case HartOp::kLi:
    case HartOp::kNop:
    case HartOp::kLb:
    case HartOp::kLh:
    case HartOp::kLw:
    case HartOp::kLbu:
    case HartOp::kLhu:
    case HartOp::kSb:
    case HartOp::kSh:
    case HartOp::kSw:
    case HartOp::kBeq:
    case HartOp::kBne:
    case HartOp::kBlt:
    case HartOp::kBge:
    case HartOp::kBltu:
    case HartOp::kBgeu:
      return true;
    default:
      return code_ends_with(op) || (op >= HartOp::kAddi && op <= HartOp::kMulhu);
  }
}

bool code_ends_with(HartOp op) { return op == HartOp::kJal || op == HartOp::kJalr; }

}  // namespace tpu::model
