// See split_double.hpp. The arithmetic is in double_math.cpp and double_functions.cpp.
#include "legalize/double/split_double.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "ir/op_traits.hpp"
#include "legalize/double/double_functions.hpp"
#include "legalize/double/double_math.hpp"
#include "legalize/legalize.hpp"

namespace tpu::compiler {

namespace {

bool is_double(const Value* v) { return v->type.elem == Elem::kF64; }

Type bits_type(const Type& t) { return {Elem::kU64, t.dims}; }

[[noreturn]] void refuse_double(const Op& op, const std::string& why) {
  throw Error(why, source_name(op.kind), op.loc);
}

constexpr std::string_view kNotOnDouble = "not supported on f64; use float32 for this operation";

bool touches_double(const Op& op) {
  return std::any_of(op.operands.begin(), op.operands.end(),
                     [](const Value* v) { return is_double(v); }) ||
         std::any_of(op.results.begin(), op.results.end(),
                     [](const auto& r) { return is_double(r.get()); });
}

class DoubleSplitter {
 public:
  bool run(Function& main) {
    arguments(main);
    region(main.body, &main);
    return any_;
  }

 private:
  // Bits in memory, taken apart in front of all other ops.
  void arguments(Function& main) {
    std::vector<std::unique_ptr<Op>> later;
    later.swap(main.body.ops);
    for (size_t i = 0; i < main.args.size(); ++i) {
      auto& arg = main.body.args[i];
      if (!is_double(arg.get())) {
        continue;
      }
      any_ = true;
      main.args[i].global.elem = Elem::kU64;
      main.args[i].is_double = true;
      auto fresh = std::make_unique<Value>(*arg);
      fresh->type = bits_type(arg->type);
      rw_.place(main.body, *later.back());
      pairs_[arg.get()] = math_.from_bits(fresh.get());
      bits_[arg.get()] = fresh.get();
      arg.swap(fresh);
      old_arguments_.push_back(std::move(fresh));
    }
    for (auto& op : later) {
      main.body.ops.push_back(std::move(op));
    }
  }

  // `main`: of whose body the region is, or null.
  void region(Region& r, Function* main = nullptr) {
    std::vector<std::unique_ptr<Op>> old;
    old.swap(r.ops);
    for (auto& op : old) {
      op->operands = mapped(std::move(op->operands), replaced_);
      rw_.place(r, *op);
      if (op->kind == Kind::kReturn) {
        op->operands = main != nullptr ? returned(op->operands, *main) : expanded(op->operands);
        r.ops.push_back(std::move(op));
      } else if (!op->regions.empty()) {
        with_regions(std::move(op), r);
      } else if (touches_double(*op)) {
        any_ = true;
        one(*op);
        graveyard_.push_back(std::move(op));
      } else {
        r.ops.push_back(std::move(op));
      }
    }
  }

  const Pair& pair(const Value* v) const { return pairs_.at(v); }
  Value* bits(Value* v) { return bits_.contains(v) ? bits_.at(v) : math_.to_bits(pair(v)); }

  std::vector<Value*> returned(const std::vector<Value*>& values, Function& main) {
    std::vector<Value*> out;
    for (size_t i = 0; i < values.size(); ++i) {
      if (!is_double(values[i])) {
        out.push_back(values[i]);
        continue;
      }
      main.results[i].global.elem = Elem::kU64;
      main.results[i].is_double = true;
      out.push_back(bits(values[i]));
    }
    return out;
  }
  std::vector<Value*> expanded(const std::vector<Value*>& values) const {
    std::vector<Value*> out;
    for (Value* v : values) {
      if (is_double(v)) {
        out.push_back(pair(v).hi);
        out.push_back(pair(v).lo);
      } else {
        out.push_back(v);
      }
    }
    return out;
  }
  static std::vector<Type> expanded_types(const Op& op) {
    std::vector<Type> types;
    for (const auto& r : op.results) {
      const bool split = is_double(r.get());
      types.insert(types.end(), split ? 2 : 1, split ? pair_part(r->type) : r->type);
    }
    return types;
  }

  void set(const Op& op, const Pair& p) { pairs_[op.result()] = p; }
  void set(const Op& op, Value* v) { replaced_[op.result()] = v; }
  // Results of an op whose f64 ones are two.
  void set_expanded(const Op& op, const Op& fresh) {
    size_t at = 0;
    for (const auto& r : op.results) {
      if (is_double(r.get())) {
        pairs_[r.get()] = {fresh.result(at), fresh.result(at + 1)};
        at += 2;
      } else {
        replaced_[r.get()] = fresh.result(at++);
      }
    }
  }

  void one(const Op& op) {
    switch (op.kind) {
      case Kind::kConstant:
        return set(op, math_.constant(op.as<ConstantAttrs>().value));
      case Kind::kIota: {
        const Type counts{Elem::kI32, op.type().dims};
        return set(op, math_.from(b_.iota(counts, op.as<DimAttrs>().dim)));
      }
      case Kind::kConvert:
        return convert(op);
      case Kind::kBitcastConvert:
        return bitcast(op);
      case Kind::kCompare: {
        const auto& a = op.as<CompareAttrs>();
        return set(op, math_.compare(a.direction, pair(op.operands[0]), pair(op.operands[1]),
                                     a.type == CompareType::kTotalOrder));
      }
      case Kind::kIsFinite:
        return set(op, math_.is_finite(pair(op.operands[0])));
      case Kind::kClamp:
        return clamp(op);
      case Kind::kReducePrecision:
        return reduce_precision(op);
      case Kind::kSend:
        rw_.make_op(op.kind, {bits(op.operands[0])}, {}, op.attrs);
        return;
      case Kind::kRecv:
        return set(op, math_.from_bits(rw_.make(op.kind, {}, bits_type(op.type()), op.attrs)));
      case Kind::kWindow:
        return by_parts(op);
      case Kind::kAllGather:
      case Kind::kAllToAll:
      case Kind::kOptimizationBarrier:
        return set_expanded(
            op, *rw_.make_op(op.kind, expanded(op.operands), expanded_types(op), op.attrs));
      default:  // by parts, elementwise, or rejected below
        return structural(op);
    }
  }

  void structural(const Op& op) {
    if (has_trait(op.kind, trait::kByParts)) {
      return by_parts(op);
    }
    const bool known = is_elementwise(op.kind) && is_double(op.operands[0]);
    std::optional<Pair> made;
    if (known && op.operands.size() == 1) {
      made = functions_.unary(op.kind, pair(op.operands[0]));
    } else if (known && op.operands.size() == 2) {
      made = functions_.binary(op.kind, pair(op.operands[0]), pair(op.operands[1]));
    }
    if (!made) {
      refuse_double(op, std::string(kNotOnDouble));
    }
    set(op, *made);
  }

  // The op on each part; operands that are not f64 are shared.
  void by_parts(const Op& op) {
    std::array<Value*, 2> made{};
    for (const bool low : {false, true}) {
      std::vector<Value*> operands;
      for (Value* v : op.operands) {
        operands.push_back(!is_double(v) ? v : low ? pair(v).lo : pair(v).hi);
      }
      made[low ? 1 : 0] = rw_.make(op.kind, std::move(operands), pair_part(op.type()), op.attrs);
    }
    set(op, Pair{made[0], made[1]});
  }

  void convert(const Op& op) {
    Value* x = op.operands[0];
    const Elem to = op.type().elem;
    if (to == Elem::kF64) {
      Value* real =
          is_complex(x->type.elem) ? rw_.make(Kind::kReal, {x}, {Elem::kF32, x->type.dims}) : x;
      return set(op, is_double(x) ? pair(x) : math_.from(real));
    }
    if (is_complex(to)) {
      return set(op, rw_.make(Kind::kConvert, {pair(x).hi}, op.type()));
    }
    set(op, math_.to(pair(x), to));
  }

  // The bits are those of IEEE binary64.
  void bitcast(const Op& op) {
    Value* x = op.operands[0];
    if (!is_double(x)) {
      return set(op, math_.from_bits(b_.bitcast(x, bits_type(op.type()))));
    }
    if (op.type().elem == Elem::kF64) {
      return set(op, pair(x));
    }
    set(op, b_.bitcast(bits(x), op.type()));
  }

  void clamp(const Op& op) {
    const auto bound = [&](size_t i) {
      const Pair& p = pair(op.operands[i]);
      const Dims& dims = op.type().dims;
      return p.hi->type.dims == dims
                 ? p
                 : Pair{b_.broadcast_scalar(p.hi, dims), b_.broadcast_scalar(p.lo, dims)};
    };
    const Pair low = math_.extreme(Kind::kMaximum, pair(op.operands[1]), bound(0));
    set(op, math_.extreme(Kind::kMinimum, low, bound(2)));
  }

  void reduce_precision(const Op& op) {
    constexpr int64_t kPairBits = 48, kF32Bits = 23, kF32Exponent = 8;
    const auto& a = op.as<ReducePrecisionAttrs>();
    const Pair& x = pair(op.operands[0]);
    if (a.mantissa_bits >= kPairBits && a.exponent_bits >= kF32Exponent) {
      return set(op, x);
    }
    if (a.mantissa_bits > kF32Bits) {
      refuse_double(op,
                    "f64 can be reduced to at most 23 bits of mantissa, or to at least 48 and "
                    "an exponent of at least 8; use one of these formats");
    }
    set(op, math_.from_f32(rw_.make(op.kind, {x.hi}, x.hi->type, op.attrs)));
  }

  // ---- ops with regions: two values for each f64, on both sides of the region's boundary
  void with_regions(std::unique_ptr<Op> op, Region& to) {
    if (!touches_double(*op)) {
      for (auto& inner : op->regions) {
        region(*inner);
      }
      rw_.place(to, *op);
      to.ops.push_back(std::move(op));
      return;
    }
    any_ = true;
    switch (op->kind) {
      case Kind::kWhile:
      case Kind::kIf:
      case Kind::kCase:
      case Kind::kSort:
      case Kind::kReduce:
      case Kind::kReduceWindow:
      case Kind::kScatter:
      case Kind::kManualComputation:
        return expand(std::move(op), to);
      default:  // has no pairs
        refuse_double(*op, std::string(kNotOnDouble));
    }
  }

  Attrs expanded_attrs(const Op& op) const {
    if (op.kind != Kind::kManualComputation) {
      return op.attrs;
    }
    ManualAttrs attrs = op.as<ManualAttrs>();
    const auto twice = [](std::vector<ShardingAttrs>& list, const auto& values) {
      std::vector<ShardingAttrs> all;
      for (size_t i = 0; i < list.size(); ++i) {
        all.insert(all.end(), is_double(&*values[i]) ? 2 : 1, list[i]);
      }
      list = std::move(all);
    };
    twice(attrs.in, op.operands);
    twice(attrs.out, op.results);
    return attrs;
  }

  void expand(std::unique_ptr<Op> op, Region& to) {
    Op* fresh = to.append(op->kind, expanded(op->operands), expanded_types(*op),
                          expanded_attrs(*op), op->loc);
    for (auto& inner : op->regions) {
      Region* copy = fresh->add_region();
      region_arguments(*inner, *copy, op->kind == Kind::kSort ? 2 : 1);
      for (auto& body : inner->ops) {
        body->parent = copy;
        copy->ops.push_back(std::move(body));
      }
      inner->ops.clear();
      region(*copy);
    }
    rw_.place(to, *op);
    set_expanded(*op, *fresh);
    graveyard_.push_back(std::move(op));
  }

  // `together` arguments belong to one operand (sort: left and right): all high parts of such a
  // group stand before its low parts.
  void region_arguments(const Region& from, Region& to, size_t together) {
    for (size_t i = 0; i < from.args.size(); i += together) {
      const bool split = is_double(from.args[i].get());
      std::vector<Value*> high, low;
      for (size_t k = 0; k < together; ++k) {
        const Type& t = from.args[i + k]->type;
        high.push_back(to.add_arg(split ? pair_part(t) : t));
      }
      for (size_t k = 0; split && k < together; ++k) {
        low.push_back(to.add_arg(pair_part(from.args[i + k]->type)));
      }
      for (size_t k = 0; k < together; ++k) {
        const Value* old = from.args[i + k].get();
        if (split) {
          pairs_[old] = {high[k], low[k]};
        } else {
          replaced_[old] = high[k];
        }
      }
    }
  }

  Rewriter rw_;
  Builder b_{rw_};
  DoubleMath math_{rw_};
  DoubleFunctions functions_{math_};
  bool any_ = false;
  std::unordered_map<const Value*, Pair> pairs_;
  ValueMap replaced_;
  ValueMap bits_;  // arguments as they are in memory
  std::vector<std::unique_ptr<Value>> old_arguments_;
  std::vector<std::unique_ptr<Op>> graveyard_;  // keeps the keys alive
};

}  // namespace

bool split_double(Module& module) {
  legalize_double(module);
  return DoubleSplitter().run(*module.main);
}

}  // namespace tpu::compiler
