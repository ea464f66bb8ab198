// Splits complex64 values: see split_complex.hpp. The arithmetic is in complex_math.cpp.
#include "legalize/complex/split_complex.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "ir/op_traits.hpp"
#include "legalize/complex/complex_functions.hpp"
#include "legalize/complex/complex_ops.hpp"
#include "legalize/complex/fft.hpp"
#include "legalize/legalize.hpp"

namespace tpu::compiler {

namespace {

bool is_complex(const Value* v) { return is_complex(v->type.elem); }

[[noreturn]] void refuse_complex(const Op& op, const std::string& why) {
  throw Error(why, source_name(op.kind), op.loc);
}

constexpr std::string_view kNotOnComplex =
    "not supported on complex64; use the real and imaginary parts (jnp.real, jnp.imag)";

bool touches_complex(const Op& op) {
  return std::any_of(op.operands.begin(), op.operands.end(),
                     [](const Value* v) { return is_complex(v); }) ||
         std::any_of(op.results.begin(), op.results.end(),
                     [](const auto& r) { return is_complex(r.get()); });
}

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

class ComplexSplitter {
 public:
  explicit ComplexSplitter(ComplexBorder border) : border_(border) {}

  bool run(Function& main) {
    if (border_ == ComplexBorder::kParts) {
      main.args = expanded(main.args, main.body.args);
      main.results = expanded(main.results, main.body.terminator()->operands);
      Region old;
      old.args.swap(main.body.args);
      region_arguments(old, main.body, 1);
      old_arguments_ = std::move(old.args);
      region(main.body);
    } else {
      arguments(main);
      region(main.body, &main);
    }
    return any_;
  }

 private:
  void arguments(Function& main) {
    std::vector<std::unique_ptr<Op>> later;
    later.swap(main.body.ops);
    for (size_t i = 0; i < main.args.size(); ++i) {
      auto& arg = main.body.args[i];
      if (!is_complex(arg.get())) {
        continue;
      }
      any_ = true;
      add_parts(main.args[i]);
      auto fresh = std::make_unique<Value>(*arg);
      fresh->type = main.args[i].global;
      rw_.place(main.body, *later.back());
      parts_[arg.get()] = unpack_complex(fresh.get(), rw_);
      whole_[arg.get()] = fresh.get();
      arg.swap(fresh);
      old_arguments_.push_back(std::move(fresh));
    }
    for (auto& op : later) {
      main.body.ops.push_back(std::move(op));
    }
  }

  // Of two values, where `values` has a complex one.
  template <typename Info, typename Values>
  static std::vector<Info> expanded(const std::vector<Info>& infos, const Values& values) {
    std::vector<Info> all;
    for (size_t i = 0; i < infos.size(); ++i) {
      Info info = infos[i];
      const bool split = is_complex(info.global.elem) && is_complex(&*values[i]);
      info.global = split ? part_type(info.global) : info.global;
      all.insert(all.end(), split ? 2 : 1, info);
    }
    return all;
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
      } else if (op->kind == Kind::kReal || op->kind == Kind::kImag || touches_complex(*op)) {
        any_ = true;
        placed(*op, [&] { one(*op); });
        graveyard_.push_back(std::move(op));
      } else {
        r.ops.push_back(std::move(op));
      }
    }
  }

  // Errors without a place are of the op.
  template <typename Fn>
  static void placed(const Op& op, Fn&& fn) {
    try {
      fn();
    } catch (const Error& e) {
      if (e.op().empty()) {
        refuse_complex(op, e.message());
      }
      throw;
    }
  }

  const Complex& complex(const Value* v) const { return parts_.at(v); }

  std::vector<Value*> returned(const std::vector<Value*>& values, Function& main) {
    std::vector<Value*> out;
    for (size_t i = 0; i < values.size(); ++i) {
      if (is_complex(values[i])) {
        add_parts(main.results[i]);
      }
      out.push_back(packed(values[i]));
    }
    return out;
  }
  Value* packed(Value* v) {
    return whole_.contains(v) ? whole_.at(v) : is_complex(v) ? pack_complex(complex(v), rw_) : v;
  }
  std::vector<Value*> expanded(const std::vector<Value*>& values) const {
    std::vector<Value*> out;
    for (Value* v : values) {
      if (is_complex(v)) {
        out.push_back(complex(v).re);
        out.push_back(complex(v).im);
      } else {
        out.push_back(v);
      }
    }
    return out;
  }
  static std::vector<Type> expanded_types(const Op& op) {
    std::vector<Type> types;
    for (const auto& r : op.results) {
      const bool split = is_complex(r.get());
      types.insert(types.end(), split ? 2 : 1, split ? part_type(r->type) : r->type);
    }
    return types;
  }

  void set(const Op& op, const Complex& c) { parts_[op.result()] = c; }
  void set(const Op& op, Value* v) { replaced_[op.result()] = v; }
  // Results of an op whose complex ones are two.
  void set_expanded(const Op& op, const Op& fresh) {
    size_t at = 0;
    for (const auto& r : op.results) {
      if (is_complex(r.get())) {
        parts_[r.get()] = {fresh.result(at), fresh.result(at + 1)};
        at += 2;
      } else {
        replaced_[r.get()] = fresh.result(at++);
      }
    }
  }

  void one(const Op& op) {
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
        rw_.make_op(op.kind, {packed(op.operands[0])}, {}, op.attrs);
        return;
      case Kind::kRecv: {
        Type words = part_type(op.type());
        words.dims.push_back(2);
        return set(op, unpack_complex(rw_.make(op.kind, {}, words, op.attrs), rw_));
      }
      default:  // rejects what it does not know
        return structural(op);
    }
  }

  void structural(const Op& op) {
    switch (op.kind) {
      case Kind::kAllGather:
      case Kind::kAllToAll:
      case Kind::kOptimizationBarrier:
        if (op.results.size() > 1) {
          return set_expanded(
              op, *rw_.make_op(op.kind, expanded(op.operands), expanded_types(op), op.attrs));
        }
        return by_parts(op);
      case Kind::kCustomCall:
        return set_expanded(
            op, *rw_.make_op(op.kind, expanded(op.operands), expanded_types(op), op.attrs));
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
      refuse_complex(op, std::string(kNotOnComplex));
    }
    const auto made = op.operands.size() == 1
                          ? math_.unary(op.kind, complex(op.operands[0]))
                          : math_.binary(op.kind, complex(op.operands[0]), complex(op.operands[1]));
    if (!made) {
      refuse_complex(op, std::string(kNotOnComplex));
    }
    set(op, *made);
  }

  // The op on each part; operands that are not complex are shared.
  void by_parts(const Op& op) {
    std::array<Value*, 2> made{};
    for (const bool imaginary : {false, true}) {
      std::vector<Value*> operands;
      for (Value* v : op.operands) {
        operands.push_back(!is_complex(v) ? v : imaginary ? complex(v).im : complex(v).re);
      }
      made[imaginary ? 1 : 0] =
          rw_.make(op.kind, std::move(operands), part_type(op.type()), op.attrs);
    }
    set(op, Complex{made[0], made[1]});
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
    const auto bound = [&](size_t i) {
      const Complex& c = complex(op.operands[i]);
      const Dims& dims = op.type().dims;
      return c.re->type.dims == dims
                 ? c
                 : Complex{b_.broadcast_scalar(c.re, dims), b_.broadcast_scalar(c.im, dims)};
    };
    const Complex low = math_.extreme(Kind::kMaximum, complex(op.operands[1]), bound(0));
    set(op, math_.extreme(Kind::kMinimum, low, bound(2)));
  }

  void contraction(const Op& op) {
    const auto operand = [&](size_t i) {
      Value* v = op.operands[i];
      return is_complex(v) ? complex(v) : math_.from_real(b_.convert(v, Elem::kF32));
    };
    if (!is_complex(op.type().elem)) {
      refuse_complex(op, "the result of complex operands must be complex64");
    }
    set(op, op.kind == Kind::kDotGeneral ? complex_dot(op, operand(0), operand(1), rw_)
                                         : complex_convolution(op, operand(0), operand(1), rw_));
  }

  void matrices(const Op& op) {
    std::vector<Complex> operands;
    for (Value* v : op.operands) {
      operands.push_back(is_complex(v) ? complex(v) : Complex{v, nullptr});
    }
    const std::vector<Complex> made = complex_matrix_op(op, operands, rw_);
    for (size_t i = 0; i < op.results.size(); ++i) {
      if (is_complex(op.result(i))) {
        parts_[op.result(i)] = made.at(i);
      } else {
        replaced_[op.result(i)] = made.at(i).re;
      }
    }
  }

  // ---- ops with regions: two values for each complex one, on both sides of the region's boundary
  void with_regions(std::unique_ptr<Op> op, Region& to) {
    if (!touches_complex(*op)) {
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
          refuse_complex(*op, "over cores complex64 arrays can only be summed (jax.lax.psum)");
        }
        return bodies_of_parts(std::move(op));
      default:
        refuse_complex(*op, std::string(kNotOnComplex));
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
    graveyard_.push_back(std::move(op));
  }

  Attrs expanded_attrs(const Op& op) const {
    if (op.kind != Kind::kManualComputation) {
      return op.attrs;
    }
    ManualAttrs attrs = op.as<ManualAttrs>();
    const auto twice = [](std::vector<ShardingAttrs>& list, const auto& values) {
      std::vector<ShardingAttrs> all;
      for (size_t i = 0; i < list.size(); ++i) {
        all.insert(all.end(), is_complex(&*values[i]) ? 2 : 1, list[i]);
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

  // `together` arguments belong to one operand (sort: left and right): all real parts of such a
  // group stand before its imaginary parts.
  void region_arguments(const Region& from, Region& to, size_t together) {
    for (size_t i = 0; i < from.args.size(); i += together) {
      const bool split = is_complex(from.args[i].get());
      std::vector<Value*> re, im;
      for (size_t k = 0; k < together; ++k) {
        const Type& t = from.args[i + k]->type;
        re.push_back(to.add_arg(split ? part_type(t) : t));
      }
      for (size_t k = 0; split && k < together; ++k) {
        im.push_back(to.add_arg(part_type(from.args[i + k]->type)));
      }
      for (size_t k = 0; k < together; ++k) {
        const Value* old = from.args[i + k].get();
        if (split) {
          parts_[old] = {re[k], im[k]};
        } else {
          replaced_[old] = re[k];
        }
      }
    }
  }

  const ComplexBorder border_;
  Rewriter rw_;
  Builder b_{rw_};
  ComplexFunctions math_{rw_};
  bool any_ = false;
  std::unordered_map<const Value*, Complex> parts_;
  ValueMap replaced_;
  ValueMap whole_;  // arguments of main, as they lie in memory
  std::vector<std::unique_ptr<Value>> old_arguments_;
  std::vector<std::unique_ptr<Op>> graveyard_;  // keeps the keys alive
};

// A body of scalars on whole arrays.
std::vector<Value*> complex_map(Op& op, Rewriter& rw) {
  return op.kind == Kind::kMap && touches_complex(op) ? legalization::map(op, rw)
                                                      : std::vector<Value*>{};
}

}  // namespace

bool split_complex(Module& module, ComplexBorder border) {
  Rewriter().run(module.main->body, complex_map);
  return ComplexSplitter(border).run(*module.main);
}

}  // namespace tpu::compiler
