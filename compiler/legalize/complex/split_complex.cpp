// Splits complex64 values: see split_complex.hpp. The arithmetic is in complex_math.cpp.
#include "legalize/complex/split_complex.hpp"

#include "ir/op_traits.hpp"
#include "legalize/complex/complex_functions.hpp"
#include "legalize/complex/complex_ops.hpp"
#include "legalize/complex/fft.hpp"
#include "legalize/legalize.hpp"

namespace tpu::compiler {

namespace {

bool is_complex(const Value* v) { return is_complex(v->type.elem); }

// What is said of an array [..] said of [.., 2].
void add_parts(std::optional<ShardingAttrs>& wanted, size_t rank) {
  if (!wanted) {
    return;
  }
  if (!wanted->sharding.dim_axes.empty()) {
    wanted->sharding.dim_axes.resize(rank + 1);
  }
  if (!wanted->open.empty()) {
    wanted->open.resize(rank);
    wanted->open.push_back(false);
  }
}

// An argument or result of main as it lies in memory.
template <typename Info>
void add_parts(Info& info) {
  add_parts(info.wanted, info.global.dims.size());
  info.global.elem = Elem::kF32;
  info.global.dims.push_back(2);
  info.is_complex = true;
}

class ComplexSplitter : public PairSplitter {
 public:
  explicit ComplexSplitter(SplitBorder border)
      : PairSplitter(
            {Elem::kComplex64}, Elem::kF32, border,
            "not supported on complex64; use the real and imaginary parts (jnp.real, jnp.imag)") {}

 private:
  bool takes_part(const Op& op) const override {
    return op.kind == Kind::kReal || op.kind == Kind::kImag || touches(op, Elem::kComplex64);
  }
  Type memory_type(const Type& type) const override {
    Type words = part_type(type);
    words.dims.push_back(2);
    return words;
  }
  void mark(ArgInfo& info) const override { add_parts(info); }
  void mark(ResultInfo& info) const override { add_parts(info); }
  Parts unpacked(Value* memory) override { return parts_of(unpack_complex(memory, rw_)); }
  Value* packed(const Parts& parts) override {
    return pack_complex({parts.first, parts.second}, rw_);
  }

  static Parts parts_of(const Complex& c) { return {c.re, c.im}; }
  static Complex complex(const Parts& p) { return {p.first, p.second}; }
  Complex complex(const Value* v) const { return complex(parts(v)); }
  using PairSplitter::set;
  void set(const Op& op, const Complex& c) { PairSplitter::set(op, parts_of(c)); }

  void one(const Op& op) override {
    switch (op.kind) {
      case Kind::kConstant:
        return set(op, complex_constant(op.as<ConstantAttrs>().value, rw_));
      case Kind::kIota:
        return set(op, math_.from_real(b_.iota(part_type(op.type()), op.as<DimAttrs>().dim)));
      case Kind::kComplex:
        return set(op, Complex{op.operands[0], op.operands[1]});
      case Kind::kReal:
      case Kind::kImag:
        return part(op);
      case Kind::kAbs:
        return set(op, math_.absolute(complex(op.operands[0])));
      case Kind::kConvert:
        return convert(op);
      case Kind::kCompare:
        return set(op, math_.compare(op.as<CompareAttrs>().direction, complex(op.operands[0]),
                                     complex(op.operands[1])));
      case Kind::kClamp:
        return clamp(op);
      case Kind::kDotGeneral:
      case Kind::kConvolution:
        return contraction(op);
      case Kind::kFft: {
        Value* x = op.operands[0];
        const Complex out =
            fourier_transform(op, is_complex(x) ? complex(x) : Complex{x, nullptr}, rw_);
        return op.type().elem == Elem::kF32 ? set(op, out.re) : set(op, out);
      }
      case Kind::kSend:
        return send(op);
      case Kind::kRecv:
        return recv(op);
      default:  // rejects what it does not know
        return structural(op);
    }
  }

  void structural(const Op& op) {
    switch (op.kind) {
      case Kind::kAllGather:
      case Kind::kAllToAll:
      case Kind::kOptimizationBarrier:
        return op.results.size() > 1 ? on_all_parts(op) : by_parts(op);
      case Kind::kCustomCall:
        return on_all_parts(op);
      default:  // by parts, of matrices, elementwise, or rejected below
        break;
    }
    if (has_trait(op.kind, trait::kByParts)) {
      return by_parts(op);
    }
    if (is_matrix_op(op.kind)) {
      return matrices(op);
    }
    if (op.kind == Kind::kBitcastConvert && op.type() == op.operand_type(0)) {
      return set(op, complex(op.operands[0]));
    }
    if (!is_elementwise(op.kind) || !is_complex(op.operands[0])) {
      refuse(op);
    }
    const auto made = op.operands.size() == 1
                          ? math_.unary(op.kind, complex(op.operands[0]))
                          : math_.binary(op.kind, complex(op.operands[0]), complex(op.operands[1]));
    if (!made) {
      refuse(op);
    }
    set(op, *made);
  }

  void part(const Op& op) {
    Value* x = op.operands[0];
    if (!is_complex(x)) {
      return set(op, op.kind == Kind::kReal ? x : b_.zeros_like(x));
    }
    set(op, op.kind == Kind::kReal ? complex(x).re : complex(x).im);
  }

  // Real numbers are those without an imaginary part, which gets lost.
  void convert(const Op& op) {
    Value* x = op.operands[0];
    if (!is_complex(op.type().elem)) {
      return set(op, b_.convert(complex(x).re, op.type().elem));
    }
    set(op, is_complex(x) ? complex(x) : math_.from_real(b_.convert(x, Elem::kF32)));
  }

  void clamp(const Op& op) {
    const Complex low =
        math_.extreme(Kind::kMaximum, complex(op.operands[1]), complex(bound(op, 0)));
    set(op, math_.extreme(Kind::kMinimum, low, complex(bound(op, 2))));
  }

  void contraction(const Op& op) {
    const auto operand = [&](size_t i) {
      Value* v = op.operands[i];
      return is_complex(v) ? complex(v) : math_.from_real(b_.convert(v, Elem::kF32));
    };
    if (!is_complex(op.type().elem)) {
      refuse(op, "the result of complex operands must be complex64");
    }
    const Complex right = operand(1), left = operand(0);
    set(op, op.kind == Kind::kDotGeneral ? complex_dot(op, left, right, rw_)
                                         : complex_convolution(op, left, right, rw_));
  }

  void matrices(const Op& op) {
    std::vector<Complex> operands;
    for (Value* v : op.operands) {
      operands.push_back(is_complex(v) ? complex(v) : Complex{v, nullptr});
    }
    const std::vector<Complex> made = complex_matrix_op(op, operands, rw_);
    for (size_t i = 0; i < op.results.size(); ++i) {
      if (is_complex(op.result(i))) {
        set_result(op.result(i), parts_of(made.at(i)));
      } else {
        set_result(op.result(i), made.at(i).re);
      }
    }
  }

  void one_with_regions(std::unique_ptr<Op> op, Region& to) override {
    switch (op->kind) {
      case Kind::kWhile:
      case Kind::kIf:
      case Kind::kCase:
      case Kind::kSort:
      case Kind::kManualComputation:
        return expand(std::move(op), to);
      case Kind::kReduce:
      case Kind::kReduceWindow:
      case Kind::kScatter:
        if (op->results.size() == 1 && has_bodies_of_parts(*op)) {
          return bodies_of_parts(std::move(op));
        }
        return expand(std::move(op), to);
      case Kind::kAllReduce:
      case Kind::kReduceScatter:
        if (!has_bodies_of_parts(*op)) {
          refuse(*op, "over cores complex64 arrays can only be summed (jax.lax.psum)");
        }
        return bodies_of_parts(std::move(op));
      default:
        refuse(*op);
    }
  }

  // Sums of each part by itself; for several results, which are collectives, one op of all parts.
  void bodies_of_parts(std::unique_ptr<Op> op) {
    if (op->results.size() > 1) {
      Op* all = rw_.make_op(op->kind, expanded(op->operands), expanded_types(*op), op->attrs);
      part_body(*op, *all);
      set_expanded(*op, *all);
    } else {
      by_parts(*op);
      part_body(*op, *complex(op->result()).re->def);
      part_body(*op, *complex(op->result()).im->def);
    }
    bury(std::move(op));
  }

  ComplexFunctions math_{rw_};
};

// A body of scalars on whole arrays.
std::vector<Value*> complex_map(Op& op, Rewriter& rw) {
  return op.kind == Kind::kMap && touches(op, Elem::kComplex64) ? legalization::map(op, rw)
                                                                : std::vector<Value*>{};
}

}  // namespace

bool split_complex(Module& module, SplitBorder border) {
  Rewriter().run(module.main->body, complex_map);
  return ComplexSplitter(border).run(*module.main);
}

}  // namespace tpu::compiler
