// Type rules of elementwise ops and of ops that move data, and the dispatch to the others.
#include "ir/verify_types.hpp"

#include <algorithm>

#include "ir/op_traits.hpp"
#include "ir/verify_rule.hpp"

namespace tpu::compiler {
namespace {

// Why an elementwise op cannot take operands of this type; null if it can.
const char* objection(Kind kind, Elem e) {
  switch (traits_of(kind).takes) {
    case Takes::kOwn:
      return "internal: no rule for the types of this op";
    case Takes::kAny:
      return nullptr;
    case Takes::kNumbers:
      return e != Elem::kI1 ? nullptr : "must take numbers";
    case Takes::kBits:
      return !is_float(e) && !is_complex(e) ? nullptr : "must take integers or i1";
    case Takes::kIntegers:
      return is_integer(e) ? nullptr : "must take integers";
    case Takes::kFloats:
      return is_float(e) ? nullptr : "must take floats";
    case Takes::kFloatsOrComplex:
      return is_float(e) || is_complex(e) ? nullptr : "must take floats";
  }
  return nullptr;
}

}  // namespace

void TypeRule::run() const {
  const Group group = traits_of(op_.kind).group;
  if (group == Group::kUnary) {
    unary();
  } else if (group == Group::kBinary) {
    binary();
  } else if (is_collective(op_.kind)) {
    BodyRule(op_, module_).collective();
  } else if (is_matrix_op(op_.kind)) {
    MatrixRule(op_, module_).matrix_op();
  } else {
    other();
  }
}

void TypeRule::unary() const {
  const Elem e = in(0).elem;
  if (op_.kind == Kind::kBitcastConvert) {
    bitcast();
    return;
  }
  check(in(0).dims == out().dims, "operand and result must have one shape");
  if (op_.kind == Kind::kConvert) {
    return;
  }
  if (op_.kind == Kind::kReal || op_.kind == Kind::kImag) {
    check(e == Elem::kF32 || is_complex(e), "must take f32 or complex64");
    return check_result(in(0).dims, Elem::kF32);
  }
  if (op_.kind == Kind::kIsFinite) {
    return check(is_float(e) && out().elem == Elem::kI1, "must take floats and give i1");
  }
  if (op_.kind == Kind::kAbs) {
    check(e != Elem::kI1, "must take numbers");
    return check_result(in(0).dims, is_complex(e) ? Elem::kF32 : e);
  }
  const char* why = objection(op_.kind, e);
  check(why == nullptr, why);
  check(out().elem == e, "operand and result must have one type");
}

void TypeRule::bitcast() const {
  Dims from = in(0).dims;
  Dims to = out().dims;
  const int64_t a = elem_bytes(in(0).elem);
  const int64_t b = elem_bytes(out().elem);
  if (a > b) {
    from.push_back(a / b);
  } else if (b > a) {
    to.push_back(b / a);
  }
  check(from == to, "the shapes do not hold the same bits");
}

void TypeRule::binary() const {
  const Elem e = in(0).elem;
  check(in(0) == in(1), "the operands must have one type");
  if (op_.kind == Kind::kCompare) {
    check_result(in(0).dims, Elem::kI1);
    return;
  }
  if (op_.kind == Kind::kComplex) {
    check(e == Elem::kF32, "must take f32");
    return check_result(in(0).dims, Elem::kComplex64);
  }
  check_result(in(0).dims, e);
  const char* why = objection(op_.kind, e);
  check(why == nullptr, why);
}

void TypeRule::ternary() const {
  switch (op_.kind) {
    case Kind::kSelect:
      check(in(0).elem == Elem::kI1 && (in(0).is_scalar() || in(0).dims == in(1).dims),
            "the predicate must be i1, scalar or of the operands' shape");
      return check(in(1) == in(2) && in(1) == out(), "both choices and the result must be equal");
    case Kind::kMultiplyAdd:
      return check(out().elem == Elem::kF32 && in(0) == out() && in(1) == out() && in(2) == out(),
                   "operands and result must have one type, f32");
    case Kind::kClamp:
      check(in(1) == out(), "operand and result must have one type");
      for (const size_t i : {0u, 2u}) {
        check(in(i) == out() || in(i) == Type{out().elem, {}},
              "the bounds must be scalars or of the operand's type");
      }
      return;
    default:
      fail_unknown_kind(op_, "the verifier of types");
  }
}

void TypeRule::other() const {
  switch (op_.kind) {
    case Kind::kConstant:
      return check(op_.as<ConstantAttrs>().value.type == out(), "value and result differ");
    case Kind::kIota: {
      const int64_t d = op_.as<DimAttrs>().dim;
      check(d >= 0 && d < out().rank() && out().elem != Elem::kI1, "needs a dimension to count");
      return;
    }
    case Kind::kPartitionId:
    case Kind::kReplicaId:
      return check_result({}, Elem::kU32);
    case Kind::kSelect:
    case Kind::kMultiplyAdd:
    case Kind::kClamp:
      return ternary();
    case Kind::kReduce:
      return BodyRule(op_, module_).reduce();
    case Kind::kWhile:
    case Kind::kIf:
    case Kind::kCase:
      return BodyRule(op_, module_).control();
    case Kind::kShardingConstraint:
    case Kind::kReshard:
      return ShardingTypeRule(op_, module_).sharding_constraint();
    case Kind::kManualComputation:
      return ShardingTypeRule(op_, module_).manual_computation();
    case Kind::kCall:
    case Kind::kComposite:
      return BodyRule(op_, module_).call();
    case Kind::kOptimizationBarrier:
      check(op_.operands.size() == op_.results.size(), "needs a result per operand");
      for (size_t i = 0; i < op_.results.size(); ++i) {
        check(in(i) == out(i), "operands and results must be equal");
      }
      return;
    case Kind::kDotGeneral:
      return BodyRule(op_, module_).dot();
    case Kind::kConvolution:
      return BodyRule(op_, module_).convolution();
    case Kind::kFft:
      return BodyRule(op_, module_).fft();
    case Kind::kReduceWindow:
    case Kind::kSelectAndScatter:
      return BodyRule(op_, module_).window();
    case Kind::kGather:
      return IndexRule(op_, module_).gather();
    case Kind::kScatter:
      return IndexRule(op_, module_).scatter();
    case Kind::kIndexedRead:
    case Kind::kIndexedWrite:
    case Kind::kIndexedCombine:
      return IndexRule(op_, module_).indexed();
    case Kind::kSend:
    case Kind::kRecv: {
      const Type& type = op_.kind == Kind::kSend ? in(0) : out();
      return check(type.bytes() == op_.as<HostAttrs>().array.bytes(),
                   "what travels has another size than the array");
    }
    case Kind::kSort:
      return BodyRule(op_, module_).sort();
    case Kind::kMap:
      return BodyRule(op_, module_).map();
    case Kind::kBatchNormTraining:
    case Kind::kBatchNormInference:
    case Kind::kBatchNormGrad:
      return BodyRule(op_, module_).batch_norm();
      TPU_CASES(UNARY, BINARY, COLLECTIVE, MATRIX, SIZED, END)
    case Kind::kBroadcastInDim:
    case Kind::kConcatenate:
    case Kind::kDynamicSlice:
    case Kind::kDynamicUpdateSlice:
    case Kind::kPad:
    case Kind::kReshape:
    case Kind::kReverse:
    case Kind::kSlice:
    case Kind::kTranspose:
    case Kind::kWindow:
    case Kind::kRngBitGenerator:
    case Kind::kRng:
    case Kind::kCustomCall:
      return movement();
  }
}

void TypeRule::movement() const {
  switch (op_.kind) {
    case Kind::kBroadcastInDim: {
      const Dims& dims = op_.as<DimsAttrs>().dims;
      check_sizes({&dims}, in(0).rank());
      check_dims(dims, out().rank(), "the dimensions");
      check(in(0).elem == out().elem, "operand and result must have one element type");
      for (size_t i = 0; i < dims.size(); ++i) {
        const int64_t size = in(0).dims[i];
        check(size == 1 || size == out().dims[static_cast<size_t>(dims[i])], [&] {
          return "operand dimension " + std::to_string(i) + " does not fit the result";
        });
      }
      return;
    }
    case Kind::kReshape:
      return check(in(0).elem == out().elem && in(0).count() == out().count(),
                   "operand and result must have as many elements");
    case Kind::kTranspose: {
      const Dims& p = op_.as<DimsAttrs>().dims;
      check_sizes({&p}, in(0).rank());
      check_dims(p, in(0).rank(), "the dimensions");
      Dims want;
      for (const int64_t d : p) {
        want.push_back(in(0).dims[static_cast<size_t>(d)]);
      }
      return check_result(want, in(0).elem);
    }
    case Kind::kReverse:
      check_dims(op_.as<DimsAttrs>().dims, in(0).rank(), "the dimensions");
      return check(in(0) == out(), "operand and result must have one type");
    case Kind::kSlice:
      return slice();
    case Kind::kWindow:
      return window_view();
    case Kind::kPad:
      return pad();
    case Kind::kConcatenate:
      return concatenate();
    case Kind::kDynamicSlice:
    case Kind::kDynamicUpdateSlice:
      return dynamic_slice();
    case Kind::kDynamicPad:
    case Kind::kRealDynamicSlice:
    case Kind::kDynamicConv:
    case Kind::kSetDimensionSize:
      return SizeRule(op_, module_).sizes_as_operands();
    case Kind::kRng:
      return SizeRule(op_, module_).rng();
      TPU_CASES(SOURCE, ELEMENTWISE, CONTRACTION, BODY, CONTROL, COLLECTIVE, HOST, MATRIX, CALL,
                GLOBAL, END)
    case Kind::kGather:
    case Kind::kOptimizationBarrier:
    case Kind::kBatchNormTraining:
    case Kind::kBatchNormInference:
    case Kind::kBatchNormGrad:
    case Kind::kRngBitGenerator:
      return;  // kinds whose results follow no rule that a pass could break
  }
}

void TypeRule::slice() const {
  const auto& a = op_.as<SliceAttrs>();
  check_sizes({&a.start, &a.limit, &a.stride}, in(0).rank());
  Dims want;
  for (size_t i = 0; i < a.start.size(); ++i) {
    check(a.start[i] >= 0 && a.start[i] <= a.limit[i] && a.limit[i] <= in(0).dims[i] &&
              a.stride[i] >= 1,
          [&] { return "dimension " + std::to_string(i) + " is cut outside of the operand"; });
    want.push_back((a.limit[i] - a.start[i] + a.stride[i] - 1) / a.stride[i]);
  }
  check_result(want, in(0).elem);
}

void TypeRule::pad() const {
  const auto& a = op_.as<PadAttrs>();
  check_sizes({&a.low, &a.high, &a.interior}, in(0).rank());
  check(in(1) == Type{in(0).elem, {}}, "the padding value must be a scalar of the operand's type");
  Dims want;
  for (size_t i = 0; i < a.low.size(); ++i) {
    const int64_t n = in(0).dims[i];
    check(a.interior[i] >= 0, "interior padding must not be negative");
    want.push_back(
        std::max<int64_t>(0, a.low[i] + a.high[i] + n + (n > 0 ? (n - 1) * a.interior[i] : 0)));
  }
  check_result(want, in(0).elem);
}

void TypeRule::window_view() const {
  const auto& a = op_.as<WindowViewAttrs>();
  check_sizes({&a.size, &a.stride, &a.dilation}, in(0).rank());
  Dims want;
  for (size_t d = 0; d < a.size.size(); ++d) {
    check(a.size[d] > 0 && a.stride[d] > 0 && a.dilation[d] > 0,
          "window sizes, strides and dilations must be positive");
    want.push_back(positions(in(0).dims[d], a.size[d], a.stride[d], 0, 0, 1, a.dilation[d]));
  }
  want.insert(want.end(), a.size.begin(), a.size.end());
  check_result(want, in(0).elem);
}

void TypeRule::concatenate() const {
  const int64_t dim = op_.as<DimAttrs>().dim;
  check(!op_.operands.empty() && dim >= 0 && dim < in(0).rank(), "needs operands and a dimension");
  Dims want = in(0).dims;
  want[static_cast<size_t>(dim)] = 0;
  for (size_t i = 0; i < op_.operands.size(); ++i) {
    Dims rest = in(i).dims;
    check(rest.size() == want.size() && in(i).elem == in(0).elem, "the operands do not fit");
    want[static_cast<size_t>(dim)] += rest[static_cast<size_t>(dim)];
    rest[static_cast<size_t>(dim)] = want[static_cast<size_t>(dim)];
    check(rest == want, "the operands differ in another dimension");
  }
  check_result(want, in(0).elem);
}

void TypeRule::dynamic_slice() const {
  const bool update = op_.kind == Kind::kDynamicUpdateSlice;
  const size_t first = update ? 2 : 1;
  check(op_.operands.size() >= first && op_.operands.size() - first == in(0).dims.size(),
        "needs one start index per dimension");
  for (size_t i = first; i < op_.operands.size(); ++i) {
    check(in(i).is_scalar() && is_integer(in(i).elem), "the start indices must be integer scalars");
  }
  const Dims& sizes = update ? in(1).dims : op_.as<DimsAttrs>().dims;
  check_sizes({&sizes}, in(0).rank());
  for (size_t i = 0; i < sizes.size(); ++i) {
    check(sizes[i] >= 0 && sizes[i] <= in(0).dims[i], "the slice is larger than the operand");
  }
  check(!update || in(1).elem == in(0).elem, "operand and update must have one element type");
  check_result(update ? in(0).dims : sizes, in(0).elem);
}

void verify_types(const Op& op, const Module& module) { TypeRule(op, module).run(); }

}  // namespace tpu::compiler
