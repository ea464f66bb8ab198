// See fixed_indexes.hpp. Integers of 32 bits and truth values are folded; floats never are, so
// that every element keeps its bits.
#include "vpu/fixed_indexes.hpp"

#include <functional>
#include <set>

#include "ir/compare_values.hpp"

namespace tpu::compiler {

namespace {

// All that elements of `v` may be, if it is chosen from a few constants; more than kMostSteps ops
// are not looked at.
class PossibleValues {
 public:
  explicit PossibleValues(const Value* v) : known_(visit(v)) {}

  bool exclude(int64_t value) const { return known_ && !values_.contains(value); }

 private:
  bool visit(const Value* v) {
    constexpr int kMostSteps = 512;
    if (v->def == nullptr || !is_integer(v->type.elem) || ++steps_ > kMostSteps) {
      return false;
    }
    const Op& op = *v->def;
    switch (op.kind) {
      case Kind::kConstant: {
        const Dense& c = op.as<ConstantAttrs>().value;
        if (!c.splat && c.type.count() != 1) {
          return false;
        }
        values_.insert(c.as_int(0));
        return true;
      }
      case Kind::kSelect:
        return visit(op.operands[2]) && visit(op.operands[1]);
      case Kind::kPad:
        return visit(op.operands[0]) && visit(op.operands[1]);
      case Kind::kConvert:  // to more bits: the values stay
        return elem_bytes(op.operand_type(0).elem) <= elem_bytes(v->type.elem) &&
               is_signed(op.operand_type(0).elem) == is_signed(v->type.elem) &&
               visit(op.operands[0]);
      case Kind::kBroadcastInDim:
      case Kind::kReshape:
      case Kind::kSlice:
      case Kind::kTranspose:
      case Kind::kOptimizationBarrier:
        return visit(op.operands[static_cast<size_t>(v->index)]);
      default:  // its values are not known
        return false;
    }
  }

  int steps_ = 0;
  std::set<int64_t> values_;
  bool known_;
};

bool is_known(const Operand& o) { return o.kind == Operand::Kind::kImmediate; }

Operand known(uint32_t bits) { return {Operand::Kind::kImmediate, 0, bits}; }

std::optional<Operand> fold_integer(Kind kind, const std::vector<Operand>& in) {
  if (!is_known(in[0]) || !is_known(in[1])) {
    return std::nullopt;
  }
  const uint32_t a = in[0].immediate, b = in[1].immediate;
  switch (kind) {
    case Kind::kAdd:
      return known(a + b);
    case Kind::kSubtract:
      return known(a - b);
    case Kind::kMultiply:
      return known(a * b);
    case Kind::kShiftLeft:
      return known(b < 32 ? a << b : 0);
    default:  // is computed by the vector unit
      return std::nullopt;
  }
}

std::optional<Operand> fold_truth(Kind kind, const std::vector<Operand>& in) {
  if (kind == Kind::kNot) {
    return is_known(in[0]) ? std::optional(known(in[0].immediate ^ 1u)) : std::nullopt;
  }
  if (kind != Kind::kAnd && kind != Kind::kOr) {
    return std::nullopt;
  }
  const uint32_t decides = kind == Kind::kOr ? 1 : 0;
  for (const size_t i : {0u, 1u}) {
    if (is_known(in[i])) {
      return in[i].immediate == decides ? in[i] : in[1 - i];
    }
  }
  return std::nullopt;
}

std::optional<Operand> fold_compare(const Op& op, const std::vector<Operand>& in) {
  if (op.operand_type(0).elem != Elem::kI32) {
    return std::nullopt;
  }
  const CompareDirection direction = op.as<CompareAttrs>().direction;
  if (is_known(in[0]) && is_known(in[1])) {
    const auto value = [&](size_t i) { return static_cast<int32_t>(in[i].immediate); };
    return known(compare_values(direction, value(0), value(1), std::less<int32_t>()) ? 1 : 0);
  }
  if (direction == CompareDirection::kEq || direction == CompareDirection::kNe) {
    for (const size_t i : {0u, 1u}) {
      if (is_known(in[i]) &&
          PossibleValues(op.operands[1 - i]).exclude(static_cast<int32_t>(in[i].immediate))) {
        return known(direction == CompareDirection::kNe ? 1 : 0);
      }
    }
  }
  return std::nullopt;
}

// What the node is, if it needs no instruction.
std::optional<Operand> fold(const Node& node) {
  const Op& op = *node.op;
  const Elem e = op.type().elem;
  if (node.copy) {
    return is_known(node.in[0]) ? std::optional(node.in[0]) : std::nullopt;
  }
  if (op.kind == Kind::kSelect) {
    return is_known(node.in[0]) ? std::optional(node.in[node.in[0].immediate != 0 ? 1 : 2])
                                : std::nullopt;
  }
  if (op.kind == Kind::kCompare) {
    return fold_compare(op, node.in);
  }
  if (e == Elem::kI32 && node.in.size() == 2) {
    return fold_integer(op.kind, node.in);
  }
  return e == Elem::kI1 ? fold_truth(op.kind, node.in) : std::nullopt;
}

}  // namespace

Nest fix_indexes(const Nest& nest, const std::map<int, int64_t>& values) {
  Nest out = nest;
  std::map<int, Operand> folded;
  for (size_t n = 0; n < out.nodes.size(); ++n) {
    Node& node = out.nodes[n];
    for (size_t i = 0; i < node.in.size(); ++i) {
      Operand& o = node.in[i];
      const Elem e = node.copy ? node.op->type().elem : node.op->operand_type(i).elem;
      const auto it = folded.find(o.index);
      if (o.kind == Operand::Kind::kNode && it != folded.end()) {
        o = it->second;
      } else if (o.kind == Operand::Kind::kIndex && e == Elem::kI32 && values.contains(o.index)) {
        o = known(static_cast<uint32_t>(values.at(o.index)));
      }
    }
    if (node.op->kind == Kind::kReduce) {
      continue;
    }
    if (const auto made = fold(node)) {
      folded[static_cast<int>(n)] = *made;
      node.copy = true;  // if it is stored
      node.in = {*made};
    }
  }
  return out;
}

}  // namespace tpu::compiler
