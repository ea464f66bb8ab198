// `broadcast(labels) == iota` as it stands after simplification; anything else is not known.
#include "cli/train/one_hot.hpp"

#include <algorithm>
#include <unordered_map>

namespace tpu::driver {
namespace {

using compiler::CompareAttrs;
using compiler::CompareDirection;
using compiler::DimAttrs;
using compiler::Kind;
using compiler::Op;
using compiler::Value;

// Ops that keep every number, at another place or in another type.
bool keeps_numbers(const Op& op) {
  return op.kind == Kind::kReshape || op.kind == Kind::kBroadcastInDim || op.kind == Kind::kConvert;
}

const Value* source(const Value* value) {
  while (value->def != nullptr && keeps_numbers(*value->def)) {
    value = value->def->operands[0];
  }
  return value;
}

}  // namespace

std::vector<int64_t> one_hot_classes(const compiler::Module& module) {
  const compiler::Region& body = module.main->body;
  std::vector<int64_t> classes(body.args.size(), 0);
  for (const auto& op : body.ops) {
    if (op->kind != Kind::kCompare || op->as<CompareAttrs>().direction != CompareDirection::kEq) {
      continue;
    }
    for (const size_t side : {size_t{0}, size_t{1}}) {
      const Value* argument = source(op->operands[side]);
      const Value* numbers = source(op->operands[1 - side]);
      if (argument->owner != &body || numbers->def == nullptr ||
          numbers->def->kind != Kind::kIota) {
        continue;
      }
      const auto dim = static_cast<size_t>(numbers->def->as<DimAttrs>().dim);
      const int64_t count = numbers->type.dims[dim];
      int64_t& known = classes[static_cast<size_t>(argument->index)];
      known = known == 0 ? count : std::min(known, count);
    }
  }
  return classes;
}

}  // namespace tpu::driver
