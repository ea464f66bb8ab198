// See split_double.hpp. The arithmetic is in double_math.cpp and double_functions.cpp.
#include "legalize/double/split_double.hpp"

#include "ir/op_traits.hpp"
#include "legalize/double/double_contraction.hpp"
#include "legalize/double/double_functions.hpp"
#include "legalize/double/double_math.hpp"
#include "legalize/legalize.hpp"

namespace tpu::compiler {

namespace {

class DoubleSplitter : public PairSplitter {
 public:
  explicit DoubleSplitter(SplitBorder border)
      : PairSplitter({Elem::kF64}, Elem::kF32, border,
                     "not supported on f64; use float32 for this operation") {}

 private:
  Type memory_type(const Type& type) const override { return {Elem::kU64, type.dims}; }
  template <typename Info>
  static void mark_bits(Info& info) {
    info.global.elem = Elem::kU64;
    info.is_double = true;
  }
  void mark(ArgInfo& info) const override { mark_bits(info); }
  void mark(ResultInfo& info) const override { mark_bits(info); }
  Parts unpacked(Value* memory) override { return parts_of(math_.from_bits(memory)); }
  Value* packed(const Parts& parts) override { return math_.to_bits({parts.first, parts.second}); }

  static Parts parts_of(const Pair& p) { return {p.hi, p.lo}; }
  static Pair pair(const Parts& p) { return {p.first, p.second}; }
  Pair pair(const Value* v) const { return pair(parts(v)); }
  using PairSplitter::set;
  void set(const Op& op, const Pair& p) { PairSplitter::set(op, parts_of(p)); }
  bool is_double(const Value* v) const { return is_split(v); }

  void one(const Op& op) override {
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
        return send(op);
      case Kind::kRecv:
        return recv(op);
      case Kind::kWindow:
        return by_parts(op);
      case Kind::kDotGeneral:
      case Kind::kConvolution:
        return contraction(op);
      case Kind::kAllGather:
      case Kind::kAllToAll:
      case Kind::kCustomCall:
      case Kind::kOptimizationBarrier:
        return on_all_parts(op);
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
      refuse(op);
    }
    set(op, *made);
  }

  // An operand of any type.
  Pair number(Value* v) { return is_double(v) ? pair(v) : math_.from(v); }

  void contraction(const Op& op) {
    const Pair right = number(op.operands[1]), left = number(op.operands[0]);
    const Pair y = contraction_.run(op, left, right);
    return is_double(op.result()) ? set(op, y) : set(op, math_.to(y, op.type().elem));
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
      return set(op, math_.from_bits(b_.bitcast(x, memory_type(op.type()))));
    }
    if (op.type().elem == Elem::kF64) {
      return set(op, pair(x));
    }
    set(op, b_.bitcast(whole(x), op.type()));
  }

  void clamp(const Op& op) {
    const Pair low = math_.extreme(Kind::kMaximum, pair(op.operands[1]), pair(bound(op, 0)));
    set(op, math_.extreme(Kind::kMinimum, low, pair(bound(op, 2))));
  }

  void reduce_precision(const Op& op) {
    constexpr int64_t kPairBits = 48, kF32Bits = 23, kF32Exponent = 8;
    const auto& a = op.as<ReducePrecisionAttrs>();
    const Pair& x = pair(op.operands[0]);
    if (a.mantissa_bits >= kPairBits && a.exponent_bits >= kF32Exponent) {
      return set(op, x);
    }
    if (a.mantissa_bits > kF32Bits) {
      refuse(op,
             "f64 can be reduced to at most 23 bits of mantissa, or to at least 48 and "
             "an exponent of at least 8; use one of these formats");
    }
    set(op, math_.from_f32(rw_.make(op.kind, {x.hi}, x.hi->type, op.attrs)));
  }

  void one_with_regions(std::unique_ptr<Op> op, Region& to) override {
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
        refuse(*op);
    }
  }

  DoubleMath math_{rw_};
  DoubleFunctions functions_{math_};
  DoubleContraction contraction_{rw_, math_};
};

}  // namespace

bool split_double(Module& module, SplitBorder border) {
  legalize_double(module);
  return DoubleSplitter(border).run(*module.main);
}

}  // namespace tpu::compiler
