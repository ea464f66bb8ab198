// See split_wide.hpp. The arithmetic is in wide_math.cpp.
#include "legalize/int64/split_wide.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <unordered_map>

#include "ir/op_traits.hpp"
#include "legalize/int64/wide_collectives.hpp"
#include "legalize/int64/wide_halves.hpp"
#include "legalize/int64/wide_math.hpp"
#include "legalize/int64/wide_parameters.hpp"
#include "legalize/legalize.hpp"

namespace tpu::compiler {

namespace {

bool is_wide(Elem e) { return e == Elem::kI64 || e == Elem::kU64; }
bool is_wide(const Value* v) { return is_wide(v->type.elem); }

Type half_type(const Type& t) { return {Elem::kU32, t.dims}; }

Dims with_pair(Dims dims) {
  dims.push_back(2);
  return dims;
}

Dims planes(Dims dims) {  // of the host: low words, then high ones
  dims.insert(dims.begin(), 2);
  return dims;
}

[[noreturn]] void refuse(const Op& op, const std::string& why) {
  throw Error(why, source_name(op.kind), op.loc);
}

bool touches_wide(const Op& op) {
  return std::any_of(op.operands.begin(), op.operands.end(),
                     [](const Value* v) { return is_wide(v); }) ||
         std::any_of(op.results.begin(), op.results.end(),
                     [](const auto& r) { return is_wide(r.get()); });
}

class Splitter {
 public:
  bool run(Function& main) {
    arguments(main);
    split_parameters(main);
    region(main.body);
    return any_;
  }

 private:
  // Two values for each 64-bit argument.
  void arguments(Function& main) {
    std::vector<std::unique_ptr<Value>> old;
    old.swap(main.body.args);
    for (auto& arg : old) {
      if (!is_wide(arg.get())) {
        arg->index = static_cast<int>(main.body.args.size());
        main.body.args.push_back(std::move(arg));
        continue;
      }
      any_ = true;
      const Type half = half_type(arg->type);
      Value* lo = main.body.add_arg(half);
      pairs_[arg.get()] = {lo, main.body.add_arg(half)};
      old_arguments_.push_back(std::move(arg));
    }
  }

  void region(Region& r) {
    std::vector<std::unique_ptr<Op>> old;
    old.swap(r.ops);
    for (auto& op : old) {
      op->operands = mapped(std::move(op->operands), replaced_);
      rw_.place(r, *op);
      if (op->kind == Kind::kReturn) {
        op->operands = expanded(op->operands);
        r.ops.push_back(std::move(op));
      } else if (!op->regions.empty()) {
        with_regions(std::move(op), r);
      } else if (touches_wide(*op)) {
        any_ = true;
        one(*op);
        graveyard_.push_back(std::move(op));
      } else {
        r.ops.push_back(std::move(op));
      }
    }
  }

  const Wide& wide(const Value* v) const { return pairs_.at(v); }

  // [.., 2] words to halves and back.
  Wide unpack(Value* words) {
    const int64_t last = words->type.rank() - 1;
    Dims dims = words->type.dims;
    dims.pop_back();
    const auto half = [&](int64_t i) {
      return b_.reshape(b_.slice_dim(words, last, i, i + 1), dims);
    };
    return {half(0), half(1)};
  }
  // By a choice in each place: stores of every other word would cost a granule of HBM each.
  Value* pack(const Wide& w) {
    const Type words{Elem::kU32, with_pair(w.lo->type.dims)};
    Dims where;
    for (int64_t d = 0; d + 1 < words.rank(); ++d) {
      where.push_back(d);
    }
    Value* place = b_.iota(words, words.rank() - 1);
    return b_.select(b_.compare(CompareDirection::kEq, place, b_.zeros_like(place)),
                     b_.broadcast(w.lo, words.dims, where), b_.broadcast(w.hi, words.dims, where));
  }

  // As the host sends and takes it: [2, ..].
  Value* stack(const Wide& w) {
    const Dims dims = with_dim(planes(w.lo->type.dims), 0, 1);
    return b_.concatenate({b_.reshape(w.lo, dims), b_.reshape(w.hi, dims)}, 0);
  }
  Wide unstack(Value* words) {
    const Dims dims(words->type.dims.begin() + 1, words->type.dims.end());
    const auto half = [&](int64_t i) { return b_.reshape(b_.slice_dim(words, 0, i, i + 1), dims); };
    return {half(0), half(1)};
  }

  std::vector<Value*> expanded(const std::vector<Value*>& values) const {
    std::vector<Value*> out;
    for (Value* v : values) {
      if (pairs_.contains(v)) {
        out.push_back(wide(v).lo);
        out.push_back(wide(v).hi);
      } else {
        out.push_back(v);
      }
    }
    return out;
  }

  void set(const Op& op, const Wide& w) { pairs_[op.result()] = w; }
  void set(const Op& op, Value* v) { replaced_[op.result()] = v; }

  void one(const Op& op) {
    const bool wide_in = !op.operands.empty() && is_wide(op.operands[0]);
    const bool is_signed_in = wide_in && op.operand_type(0).elem == Elem::kI64;
    switch (op.kind) {
      case Kind::kConstant:
        return set(op, constant(op.as<ConstantAttrs>().value));
      case Kind::kIota: {
        Value* lo = b_.iota(half_type(op.type()), op.as<DimAttrs>().dim);
        return set(op, Wide{lo, b_.zeros_like(lo)});
      }
      case Kind::kConvert:
        return convert(op, is_signed_in);
      case Kind::kBitcastConvert:
        return bitcast(op);
      case Kind::kCompare:
        return set(op, math_.compare(op.as<CompareAttrs>().direction, wide(op.operands[0]),
                                     wide(op.operands[1]), is_signed_in));
      case Kind::kSelect:
        return set(op, math_.select(op.operands[0], wide(op.operands[1]), wide(op.operands[2])));
      case Kind::kClamp:
        return clamp(op);
      case Kind::kDynamicSlice:
      case Kind::kDynamicUpdateSlice:
      case Kind::kGather:
        return indexed(op);
      case Kind::kSend:
        rw_.make_op(op.kind, {stack(wide(op.operands[0]))}, {}, op.attrs);
        return;
      case Kind::kRecv: {
        const Type words{Elem::kU32, planes(op.type().dims)};
        return set(op, unstack(rw_.make_op(op.kind, {}, {words}, op.attrs)->result()));
      }
      case Kind::kOptimizationBarrier:
        for (size_t i = 0; i < op.results.size(); ++i) {
          if (is_wide(op.operands[i])) {
            pairs_[op.result(i)] = wide(op.operands[i]);
          } else {
            replaced_[op.result(i)] = op.operands[i];
          }
        }
        return;
      default:  // by halves, elementwise, or rejected below
        break;
    }
    if (has_trait(op.kind, trait::kByHalves)) {
      return by_halves(op);
    }
    if (!is_elementwise(op.kind) || !wide_in) {
      refuse(op, "not supported on 64-bit integers; use 32-bit integers");
    }
    set(op, op.operands.size() == 1 ? unary(op, is_signed_in) : binary(op, is_signed_in));
  }

  Wide constant(const Dense& value) {
    const Type half = half_type(value.type);
    const int64_t count = value.splat ? 1 : value.type.count();
    std::array<std::vector<std::byte>, 2> words;
    for (int64_t i = 0; i < count; ++i) {
      const std::byte* p = value.element(i);
      words[0].insert(words[0].end(), p, p + 4);
      words[1].insert(words[1].end(), p + 4, p + 8);
    }
    const auto make = [&](std::vector<std::byte>& bytes) {
      return rw_.constant(
          {half, value.splat, std::make_shared<const std::vector<std::byte>>(std::move(bytes))});
    };
    return {make(words[0]), make(words[1])};
  }

  void convert(const Op& op, bool is_signed_in) {
    Value* x = op.operands[0];
    const Elem to = op.type().elem;
    if (!is_wide(to)) {
      return set(op, math_.to(wide(x), to, is_signed_in));
    }
    if (is_wide(x)) {
      return set(op, wide(x));
    }
    set(op, is_float(x->type.elem) ? math_.from_float(x, to == Elem::kI64) : math_.from(x));
  }

  // Through words: [.., 2] ui32.
  void bitcast(const Op& op) {
    Value* x = op.operands[0];
    const Type& to = op.type();
    if (is_wide(x) && is_wide(to.elem)) {
      return set(op, wide(x));
    }
    const Elem narrow = is_wide(x) ? to.elem : x->type.elem;
    const int64_t parts = 4 / elem_bytes(narrow);  // of a word
    if (is_wide(x)) {
      Value* words = pack(wide(x));
      Dims dims = words->type.dims;
      if (parts > 1) {
        dims.push_back(parts);
      }
      return set(op, b_.reshape(b_.bitcast(words, {narrow, dims}), to.dims));
    }
    Dims dims = with_pair(to.dims);
    if (parts > 1) {
      dims.push_back(parts);
      x = b_.reshape(x, dims);
      dims.pop_back();
    }
    set(op, unpack(b_.bitcast(x, {Elem::kU32, dims})));
  }

  void clamp(const Op& op) {
    const bool is_signed = op.type().elem == Elem::kI64;
    const auto bound = [&](size_t i) {
      const Wide& w = wide(op.operands[i]);
      const Dims& dims = op.type().dims;
      return w.lo->type.dims == dims
                 ? w
                 : Wide{b_.broadcast_scalar(w.lo, dims), b_.broadcast_scalar(w.hi, dims)};
    };
    const Wide low = math_.extreme(Kind::kMaximum, wide(op.operands[1]), bound(0), is_signed);
    set(op, math_.extreme(Kind::kMinimum, low, bound(2), is_signed));
  }

  // The op on each half; operands that are not wide are shared.
  void by_halves(const Op& op) {
    for (size_t i = 0; i < op.results.size(); ++i) {
      if (!is_wide(op.result(i)) || op.results.size() > 1) {
        refuse(op, "several operands with 64-bit integers among them; pass one operand at a time");
      }
    }
    std::array<Value*, 2> half{};
    for (const bool high : {false, true}) {
      std::vector<Value*> operands;
      for (Value* v : op.operands) {
        operands.push_back(!is_wide(v) ? v : high ? wide(v).hi : wide(v).lo);
      }
      half[high ? 1 : 0] = rw_.make(op.kind, std::move(operands), half_type(op.type()), op.attrs);
    }
    set(op, Wide{half[0], half[1]});
  }

  Value* index(Value* v) {
    return is_wide(v) ? math_.saturated_index(wide(v), v->type.elem == Elem::kI64) : v;
  }

  // Positions count in i32: a start that does not fit is as far outside as the limit of i32.
  void indexed(const Op& op) {
    const size_t arrays = op.kind == Kind::kDynamicUpdateSlice ? 2 : 1;
    std::vector<Value*> places;
    for (size_t i = arrays; i < op.operands.size(); ++i) {
      places.push_back(index(op.operands[i]));
    }
    const auto run = [&](const std::function<Value*(Value*)>& part, const Type& type) {
      std::vector<Value*> operands;
      for (size_t i = 0; i < arrays; ++i) {
        operands.push_back(part(op.operands[i]));
      }
      operands.insert(operands.end(), places.begin(), places.end());
      return rw_.make(op.kind, operands, type, op.attrs);
    };
    if (!is_wide(op.result())) {
      return set(op, run([](Value* v) { return v; }, op.type()));
    }
    const Type half = half_type(op.type());
    set(op, Wide{run([&](Value* v) { return wide(v).lo; }, half),
                 run([&](Value* v) { return wide(v).hi; }, half)});
  }

  Wide unary(const Op& op, bool is_signed) {
    const Wide& x = wide(op.operands[0]);
    switch (op.kind) {
      case Kind::kNot:
        return math_.invert(x);
      case Kind::kNegate:
        return math_.negate(x);
      case Kind::kAbs:
        return is_signed ? math_.absolute(x) : x;
      case Kind::kSign:
        return math_.sign(x, is_signed);
      case Kind::kPopcnt:
        return math_.count_ones(x);
      case Kind::kClz:
        return math_.leading_zeros(x);
      default:
        refuse(op, "not supported on 64-bit integers; use 32-bit integers");
    }
  }

  Wide binary(const Op& op, bool is_signed) {
    const Wide& x = wide(op.operands[0]);
    const Wide& y = wide(op.operands[1]);
    switch (op.kind) {
      case Kind::kAdd:
        return math_.add(x, y);
      case Kind::kSubtract:
        return math_.subtract(x, y);
      case Kind::kMultiply:
        return math_.multiply(x, y);
      case Kind::kDivide:
        return math_.divide(x, y, is_signed);
      case Kind::kRemainder:
        return math_.remainder(x, y, is_signed);
      case Kind::kPower:
        return math_.power(x, y, is_signed);
      case Kind::kMaximum:
      case Kind::kMinimum:
        return math_.extreme(op.kind, x, y, is_signed);
      case Kind::kAnd:
      case Kind::kOr:
      case Kind::kXor:
        return math_.bitwise(op.kind, x, y);
      case Kind::kShiftLeft:
      case Kind::kShiftRightArith:
      case Kind::kShiftRightLogical:
        return math_.shift(op.kind, x, y);
      default:
        refuse(op, "not supported on 64-bit integers; use 32-bit integers");
    }
  }

  // ---- ops with regions: two values for each wide one, on both sides of the region's boundary
  void with_regions(std::unique_ptr<Op> op, Region& to) {
    if (!touches_wide(*op)) {
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
        return expand(std::move(op), to);
      case Kind::kReduce:
      case Kind::kScatter:
        if (const auto apart = body_by_halves(*op)) {
          set(*op, *apart);
          graveyard_.push_back(std::move(op));
          return;
        }
        return expand(std::move(op), to);
      case Kind::kSort:
        op->attrs = SortAttrs{op->as<SortAttrs>().dim, op->as<SortAttrs>().stable,
                              legalization::ties_are_equal(*op)};
        return expand(std::move(op), to);
      case Kind::kReduceWindow:
        return expand(std::move(op), to);
      case Kind::kAllReduce:
      case Kind::kReduceScatter:
        set(*op, reduce_over_cores(*op, wide(op->operands.at(0)), rw_));
        graveyard_.push_back(std::move(op));
        return;
      default:
        refuse(*op, "not supported on 64-bit integers; use 32-bit integers");
    }
  }

  std::optional<Wide> body_by_halves(const Op& op) {
    if (op.results.size() != 1 || !is_wide(op.result())) {
      return std::nullopt;
    }
    const Wide& x = wide(op.operands[0]);
    return op.kind == Kind::kReduce
               ? reduce_by_halves(op, x, wide(op.operands[1]), rw_)
               : scatter_by_halves(
                     op, x, [&] { return index(op.operands[1]); }, wide(op.operands[2]), rw_);
  }

  void expand(std::unique_ptr<Op> op, Region& to) {
    std::vector<Value*> operands = op->operands;
    if (op->kind == Kind::kScatter) {
      Value*& places = operands[operands.size() / 2];
      places = index(places);
    }
    std::vector<Type> types;
    for (const auto& r : op->results) {
      types.insert(types.end(), is_wide(r.get()) ? 2 : 1,
                   is_wide(r.get()) ? half_type(r->type) : r->type);
    }
    Op* fresh = to.append(op->kind, expanded(operands), std::move(types), op->attrs, op->loc);
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
    size_t at = 0;
    for (const auto& r : op->results) {
      if (is_wide(r.get())) {
        pairs_[r.get()] = {fresh->result(at), fresh->result(at + 1)};
        at += 2;
      } else {
        replaced_[r.get()] = fresh->result(at++);
      }
    }
    graveyard_.push_back(std::move(op));
  }

  // `together` arguments belong to one operand (sort: left and right): all low halves of such a
  // group stand before its high halves.
  void region_arguments(const Region& from, Region& to, size_t together) {
    for (size_t i = 0; i < from.args.size(); i += together) {
      const bool split = is_wide(from.args[i].get());
      std::vector<Value*> low, high;
      for (size_t k = 0; k < together; ++k) {
        const Type& t = from.args[i + k]->type;
        low.push_back(to.add_arg(split ? half_type(t) : t));
      }
      for (size_t k = 0; split && k < together; ++k) {
        high.push_back(to.add_arg(half_type(from.args[i + k]->type)));
      }
      for (size_t k = 0; k < together; ++k) {
        const Value* old = from.args[i + k].get();
        if (split) {
          pairs_[old] = {low[k], high[k]};
        } else {
          replaced_[old] = low[k];
        }
      }
    }
  }

  Rewriter rw_;
  Builder b_{rw_};
  WideMath math_{rw_};
  bool any_ = false;
  std::unordered_map<const Value*, Wide> pairs_;
  ValueMap replaced_;
  std::vector<std::unique_ptr<Value>> old_arguments_;
  std::vector<std::unique_ptr<Op>> graveyard_;  // keeps the keys alive
};

}  // namespace

bool split_wide(Module& module) {
  const bool counters = narrow_counters(module);
  return Splitter().run(*module.main) || counters;
}

}  // namespace tpu::compiler
