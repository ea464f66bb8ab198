// See split_wide.hpp. The arithmetic is in wide_math.cpp.
#include "legalize/int64/split_wide.hpp"

#include <array>
#include <functional>
#include <optional>

#include "ir/op_traits.hpp"
#include "legalize/int64/wide_collectives.hpp"
#include "legalize/int64/wide_halves.hpp"
#include "legalize/int64/wide_math.hpp"
#include "legalize/int64/wide_parameters.hpp"
#include "legalize/legalize.hpp"
#include "legalize/pair_splitter.hpp"

namespace tpu::compiler {

namespace {

Dims with_pair(Dims dims) {
  dims.push_back(2);
  return dims;
}

Dims planes(Dims dims) {  // of the host: low words, then high ones
  dims.insert(dims.begin(), 2);
  return dims;
}

class WideSplitter : public PairSplitter {
 public:
  WideSplitter()
      : PairSplitter({Elem::kI64, Elem::kU64}, Elem::kU32, SplitBorder::kParts,
                     "not supported on 64-bit integers; use 32-bit integers") {}

 private:
  // As the host sends and takes it.
  Type memory_type(const Type& type) const override { return {Elem::kU32, planes(type.dims)}; }
  void expand_infos(Function& main) const override { split_parameters(main); }
  Value* packed(const Parts& parts) override {
    const Dims dims = with_dim(planes(parts.first->type.dims), 0, 1);
    return b_.concatenate({b_.reshape(parts.first, dims), b_.reshape(parts.second, dims)}, 0);
  }
  Parts unpacked(Value* memory) override {
    const Dims dims(memory->type.dims.begin() + 1, memory->type.dims.end());
    const auto half = [&](int64_t i) {
      return b_.reshape(b_.slice_dim(memory, 0, i, i + 1), dims);
    };
    return {half(0), half(1)};
  }

  static Parts parts_of(const Wide& w) { return {w.lo, w.hi}; }
  static Wide wide(const Parts& p) { return {p.first, p.second}; }
  Wide wide(const Value* v) const { return wide(parts(v)); }
  using PairSplitter::set;
  void set(const Op& op, const Wide& w) { PairSplitter::set(op, parts_of(w)); }

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
    Value *hi = b_.broadcast(w.hi, words.dims, where), *lo = b_.broadcast(w.lo, words.dims, where);
    Value* is_low = b_.compare(CompareDirection::kEq, place, b_.zeros_like(place));
    return b_.select(is_low, lo, hi);
  }

  void one(const Op& op) override {
    const bool wide_in = !op.operands.empty() && is_split(op.operands[0]);
    const bool is_signed_in = wide_in && op.operand_type(0).elem == Elem::kI64;
    switch (op.kind) {
      case Kind::kConstant:
        return set(op, constant(op.as<ConstantAttrs>().value));
      case Kind::kIota: {
        Value* lo = b_.iota(part_type(op.type()), op.as<DimAttrs>().dim);
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
        return send(op);
      case Kind::kRecv:
        return recv(op);
      case Kind::kOptimizationBarrier:
        for (size_t i = 0; i < op.results.size(); ++i) {
          if (is_split(op.operands[i])) {
            set_result(op.result(i), parts(op.operands[i]));
          } else {
            set_result(op.result(i), op.operands[i]);
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
      refuse(op);
    }
    set(op, op.operands.size() == 1 ? unary(op, is_signed_in) : binary(op, is_signed_in));
  }

  Wide constant(const Dense& value) {
    const Type half = part_type(value.type);
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
    if (!is_split(to)) {
      return set(op, math_.to(wide(x), to, is_signed_in));
    }
    if (is_split(x)) {
      return set(op, wide(x));
    }
    set(op, is_float(x->type.elem) ? math_.from_float(x, to == Elem::kI64) : math_.from(x));
  }

  // Through words: [.., 2] ui32.
  void bitcast(const Op& op) {
    Value* x = op.operands[0];
    const Type& to = op.type();
    if (is_split(x) && is_split(to.elem)) {
      return set(op, wide(x));
    }
    const Elem narrow = is_split(x) ? to.elem : x->type.elem;
    const int64_t parts = 4 / elem_bytes(narrow);  // of a word
    if (is_split(x)) {
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
    const Wide low =
        math_.extreme(Kind::kMaximum, wide(op.operands[1]), wide(bound(op, 0)), is_signed);
    set(op, math_.extreme(Kind::kMinimum, low, wide(bound(op, 2)), is_signed));
  }

  // The op on each half; operands that are not wide are shared.
  void by_halves(const Op& op) {
    for (size_t i = 0; i < op.results.size(); ++i) {
      if (!is_split(op.result(i)) || op.results.size() > 1) {
        refuse(op, "several operands with 64-bit integers among them; pass one operand at a time");
      }
    }
    by_parts(op);
  }

  Value* index(Value* v) {
    return is_split(v) ? math_.saturated_index(wide(v), v->type.elem == Elem::kI64) : v;
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
    if (!is_split(op.result())) {
      return set(op, run([](Value* v) { return v; }, op.type()));
    }
    const Type half = part_type(op.type());
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
        refuse(op);
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
        refuse(op);
    }
  }

  void one_with_regions(std::unique_ptr<Op> op, Region& to) override {
    switch (op->kind) {
      case Kind::kWhile:
      case Kind::kIf:
      case Kind::kCase:
        return expand(std::move(op), to);
      case Kind::kReduce:
      case Kind::kScatter:
        if (const auto apart = body_by_halves(*op)) {
          set(*op, *apart);
          return bury(std::move(op));
        }
        if (op->kind == Kind::kScatter) {
          Value*& places = op->operands[op->operands.size() / 2];
          places = index(places);
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
        return bury(std::move(op));
      default:
        refuse(*op);
    }
  }

  std::optional<Wide> body_by_halves(const Op& op) {
    if (op.results.size() != 1 || !is_split(op.result())) {
      return std::nullopt;
    }
    const Wide& x = wide(op.operands[0]);
    return op.kind == Kind::kReduce
               ? reduce_by_halves(op, x, wide(op.operands[1]), rw_)
               : scatter_by_halves(
                     op, x, [&] { return index(op.operands[1]); }, wide(op.operands[2]), rw_);
  }

  WideMath math_{rw_};
};

}  // namespace

bool split_wide(Module& module) {
  const bool counters = narrow_counters(module);
  return WideSplitter().run(*module.main) || counters;
}

}  // namespace tpu::compiler
