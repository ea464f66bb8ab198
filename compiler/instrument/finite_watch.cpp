// The bits are looked at directly behind each op, so that no value lives longer than before.
#include "instrument/finite_watch.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "ir/op_traits.hpp"
#include "legalize/builder.hpp"

namespace tpu::compiler {

namespace {

bool keeps_elements(const Op& op) { return has_trait(op.kind, trait::kKeepsFinite); }

class Watcher {
 public:
  explicit Watcher(Module& module) : module_(module), body_(module.main->body) {}

  FiniteWatch run() {
    std::vector<std::unique_ptr<Op>> ops = std::move(body_.ops);
    body_.ops.clear();
    rw_.place(body_, *ops.front());
    for (size_t i = 0; i < body_.args.size(); ++i) {
      const ArgInfo& info = module_.main->args[i];
      add(body_.args[i].get(), {WatchedValue::Source::kArgument, i, info.name, {}, {}});
    }
    for (std::unique_ptr<Op>& op : ops) {
      rw_.place(body_, *op);
      if (op->kind == Kind::kReturn) {
        finish(*op);
      }
      body_.ops.push_back(std::move(op));
      watch(*body_.ops.back());
    }
    return std::move(watch_);
  }

 private:
  void watch(const Op& op) {
    if (keeps_elements(op)) {
      if (const auto known = numbers_.find(op.operands[0]); known != numbers_.end()) {
        numbers_[op.result()] = known->second;
      }
      return;
    }
    WatchedValue value{.source = op.kind == Kind::kConstant ? WatchedValue::Source::kConstant
                                                            : WatchedValue::Source::kOp,
                       .argument = 0,
                       .op = source_name(op.kind),
                       .where = to_string(*op.loc),
                       .operands = {}};
    for (const Value* operand : op.operands) {
      if (const auto known = numbers_.find(operand); known != numbers_.end()) {
        value.operands.push_back(known->second);
      }
    }
    for (const auto& result : op.results) {
      add(result.get(), value);
    }
  }

  void add(Value* value, WatchedValue what) {
    if (!is_float(value->type.elem) || value->type.count() == 0) {
      return;
    }
    numbers_[value] = watch_.values.size();
    watch_.values.push_back(std::move(what));
    told_.push_back(b_.reshape(largest(value), {1}));
  }

  // Bits of the largest magnitude: they are ordered as the magnitudes are.
  Value* largest(Value* x) {
    const Type bits{Elem::kI32, x->type.dims};
    Value* all = b_.bitcast(b_.convert(x, Elem::kF32), bits);
    Value* magnitude = b_.logical_and(all, b_.splat_int(bits, 0x7FFFFFFF));
    if (x->type.is_scalar()) {
      return magnitude;
    }
    Dims dims(x->type.dims.size());
    std::iota(dims.begin(), dims.end(), 0);
    return b_.reduce(Kind::kMaximum, magnitude, b_.splat_int({Elem::kI32, {}}, 0), dims);
  }

  void finish(Op& ret) {
    for (const Value* result : ret.operands) {
      const auto known = numbers_.find(result);
      watch_.results.push_back(known == numbers_.end() ? std::nullopt
                                                       : std::optional(known->second));
    }
    if (told_.empty()) {  // a program of integers
      told_.push_back(b_.splat_int({Elem::kI32, {1}}, 0));
    }
    ret.operands.push_back(told_.size() == 1 ? told_[0] : b_.concatenate(told_, 0));
    ResultInfo info;
    info.name = "finite_watch";
    info.global = ret.operands.back()->type;
    info.global.dims[0] *= module_.mesh.size();
    if (!module_.mesh.axes.empty()) {
      std::vector<int>& axes = info.sharding.dim_axes.emplace_back(module_.mesh.axes.size());
      std::iota(axes.begin(), axes.end(), 0);
    }
    module_.main->results.push_back(std::move(info));
  }

  Module& module_;
  Region& body_;
  Rewriter rw_;
  Builder b_{rw_};
  FiniteWatch watch_;
  std::unordered_map<const Value*, size_t> numbers_;
  std::vector<Value*> told_;
};

Finite worst(const std::vector<size_t>& values, const std::vector<Finite>& known) {
  Finite all = Finite::kFinite;
  for (const size_t value : values) {
    all = std::max(all, known[value]);
  }
  return all;
}

}  // namespace

Finite finite_of(int32_t told) {
  constexpr int32_t kInfinity = 0x7F800000;
  return told < kInfinity ? Finite::kFinite : told == kInfinity ? Finite::kInfinite : Finite::kNan;
}

FiniteWatch watch_finite(Module& module) { return Watcher(module).run(); }

std::optional<size_t> origin_of(const FiniteWatch& watch, std::span<const int32_t> told,
                                size_t result) {
  const size_t count = watch.values.size();
  std::vector<Finite> known(count, Finite::kFinite);  // the worst of all cores: arrays travel
  for (size_t i = 0; count > 0 && i < told.size(); ++i) {
    known[i % count] = std::max(known[i % count], finite_of(told[i]));
  }
  if (!watch.results[result] || known[*watch.results[result]] == Finite::kFinite) {
    return std::nullopt;
  }
  std::vector<bool> led(count, false);  // to the result, through values that are not finite
  led[*watch.results[result]] = true;
  std::optional<size_t> origin, fallback;
  for (size_t i = count; i-- > 0;) {
    const WatchedValue& value = watch.values[i];
    if (!led[i] || known[i] == Finite::kFinite) {
      continue;
    }
    for (const size_t operand : value.operands) {
      led[operand] = true;
    }
    fallback = i;
    if (value.source != WatchedValue::Source::kConstant &&
        worst(value.operands, known) < known[i]) {
      origin = i;
    }
  }
  return origin ? origin : fallback;
}

}  // namespace tpu::compiler
