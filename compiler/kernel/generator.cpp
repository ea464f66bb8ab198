// See generator.hpp.
#include "kernel/generator.hpp"

#include <algorithm>

namespace tpu::compiler {

bool is_word_step(const Op& op) {
  if (op.results.size() != 1 || op.type().elem != Elem::kU32) {
    return false;
  }
  switch (op.kind) {
    case Kind::kAdd:
    case Kind::kXor:
    case Kind::kOr:
    case Kind::kShiftLeft:
    case Kind::kShiftRightLogical:
      return true;
    default:  // may need more registers
      return false;
  }
}

// Philox multiplies words where Threefry rotates them. A constant factor takes a register for the
// length of one instruction.
static bool is_word_product(const Op& op) {
  return op.results.size() == 1 && op.type().elem == Elem::kU32 &&
         (op.kind == Kind::kMultiply || op.kind == Kind::kMultiplyHigh);
}

size_t loop_weight(const std::vector<const Op*>& ops) {
  constexpr size_t kWord = 1, kOther = 4;
  size_t sum = 0;
  for (const Op* op : ops) {
    sum += is_word_step(*op) || is_word_product(*op) ? kWord : kOther;
  }
  return sum;
}

// Whether random bits of so many elements are worth a place of their own.
static bool is_large(const Value* v) {
  constexpr int64_t kLarge = 1024;
  return v->type.count() > kLarge;
}

int behind_contraction(const KernelProgram& program, const Dims& domain) {
  const auto makes = [](const Kernel& k, const Value* v) {
    return k.kind == KernelClass::kContract && k.out == v && k.contract().dot.batch.empty();
  };
  bool last = true;  // only small kernels so far
  for (auto k = program.kernels.rbegin(); k != program.kernels.rend(); ++k) {
    if (last && makes(*k, k->out) && k->out->type.count() == Type{Elem::kF32, domain}.count()) {
      return program.kernels.back().end + 1;
    }
    if (k->kind != KernelClass::kLoop) {
      last = last && k->out != nullptr && !is_large(k->out);
      continue;
    }
    last = last && std::none_of(k->ops.begin(), k->ops.end(),
                                [](const Op* op) { return is_large(op->result()); });
    const auto& reads = k->loop().nest.accesses;
    if (k->loop().domain == domain && loop_weight(k->ops) + kGeneratorWeight <= kMaxLoopWeight &&
        std::any_of(reads.begin(), reads.end(), [&](const NestAccess& a) {
          return std::any_of(program.kernels.begin(), program.kernels.end(),
                             [&](const Kernel& made) { return makes(made, a.value); });
        })) {
      return k->order;
    }
  }
  return -1;
}

}  // namespace tpu::compiler
