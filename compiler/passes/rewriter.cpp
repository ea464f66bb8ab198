// Forward sweep with replacement: see rewriter.hpp.
#include "passes/rewriter.hpp"

namespace tpu::compiler {

const Dense* constant_of(const Value* value) {
  return value->def != nullptr && value->def->kind == Kind::kConstant
             ? &value->def->as<ConstantAttrs>().value
             : nullptr;
}

const Dense* splat_of(const Value* value) {
  const Dense* d = constant_of(value);
  return d != nullptr && (d->splat || d->type.count() == 1) ? d : nullptr;
}

bool is_zero(const Value* value) {
  const Dense* d = splat_of(value);
  return d != nullptr && d->as_double(0) == 0;
}

bool Rewriter::run(Region& region, const Pattern& pattern) {
  changed_ = false;
  sweep(region, pattern);
  replaced_.clear();
  graveyard_.clear();
  return changed_;
}

void Rewriter::sweep(Region& region, const Pattern& pattern) {
  std::vector<std::unique_ptr<Op>> old;
  old.swap(region.ops);
  for (auto& op : old) {
    op->operands = mapped(std::move(op->operands), replaced_);
    for (auto& inner : op->regions) {
      sweep(*inner, pattern);
    }
    region_ = &region;
    current_ = op.get();
    const std::vector<Value*> values = replacement(*op, pattern);
    if (values.empty()) {
      region.ops.push_back(std::move(op));
      continue;
    }
    changed_ = true;
    for (size_t i = 0; i < op->results.size(); ++i) {
      replaced_[op->result(i)] = values.at(i);
    }
    graveyard_.push_back(std::move(op));
  }
}

// Errors without a place, such as those of sizes, are of the op under treatment.
std::vector<Value*> Rewriter::replacement(Op& op, const Pattern& pattern) {
  try {
    return pattern(op, *this);
  } catch (const Error& e) {
    if (e.op().empty()) {
      throw Error(e.message(), source_name(op.kind), op.loc);
    }
    throw;
  }
}

Value* Rewriter::make(Kind kind, std::vector<Value*> operands, Type type, Attrs attrs) {
  return region_
      ->append(kind, std::move(operands), {std::move(type)}, std::move(attrs), current_->loc)
      ->result();
}

Op* Rewriter::make_op(Kind kind, std::vector<Value*> operands, std::vector<Type> types,
                      Attrs attrs) {
  return region_->append(kind, std::move(operands), std::move(types), std::move(attrs),
                         current_->loc);
}

Value* Rewriter::constant(Dense value) {
  const Type type = value.type;
  return make(Kind::kConstant, {}, type, ConstantAttrs{std::move(value)});
}

}  // namespace tpu::compiler
