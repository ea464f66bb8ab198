// Pass `rng`: see rng.hpp. How numbers are made of bits: docs/numerics.md.
#include "legalize/rng.hpp"

#include <cmath>
#include <numbers>
#include <unordered_set>

#include "legalize/builder.hpp"

namespace tpu::compiler {
namespace {

const Type kState{Elem::kU64, {2}};  // key and counter

// Numbers of one op.
class Draw {
 public:
  Draw(const Op& op, Value* state, Rewriter& rw) : op_(op), rw_(rw), b_(rw), state_(state) {}

  Value* run() {
    const Type& out = op_.type();
    if (out.count() == 0) {
      return b_.splat_int(out, 0);
    }
    if (op_.as<RngAttrs>().algorithm == "normal") {
      return normal(out);
    }
    return out.elem == Elem::kI1 ? spread(op_.operands[0])  // [false, true)
           : is_float(out.elem)  ? uniform(out)
                                 : integers(out);
  }
  Value* state() const { return state_; }  // behind it

 private:
  Value* bits(Elem elem, const Dims& dims) {
    const Op* drawn =
        rw_.make_op(Kind::kRngBitGenerator, {state_}, {kState, {elem, dims}}, RngAttrs{"philox"});
    state_ = drawn->result(0);
    return drawn->result(1);
  }

  Value* spread(Value* scalar) { return b_.broadcast_scalar(scalar, op_.type().dims); }
  Value* spread_f32(size_t operand) {
    return spread(b_.convert(op_.operands[operand], Elem::kF32));
  }
  Value* shifted_right(Value* x, int64_t by) {
    return b_.binary(Kind::kShiftRightLogical, x, b_.splat_int(x->type, by));
  }

  // 23 random bits behind the 1 of [1, 2), less 1. What rounding makes b is a.
  Value* uniform(const Type& out) {
    constexpr int kMantissa = 23;
    constexpr int64_t kOne = 0x3f800000;
    const Type f32{Elem::kF32, out.dims};
    Value* drawn = shifted_right(bits(Elem::kU32, out.dims), 32 - kMantissa);
    Value* from_one = b_.bitcast(b_.logical_or(drawn, b_.splat_int(drawn->type, kOne)), f32);
    Value* part = b_.sub(from_one, b_.splat(f32, 1));
    Value* low = spread_f32(0);
    Value* x = b_.convert(b_.add(low, b_.mul(part, b_.sub(spread_f32(1), low))), out.elem);
    Value* inside = b_.compare(CompareDirection::kLt, x, spread(op_.operands[1]));
    return b_.select(inside, x, spread(op_.operands[0]));
  }

  // a + bits mod (b - a), in words of the type's width, 32 bits at least.
  Value* integers(const Type& out) {
    const Elem word = elem_bytes(out.elem) == 8 ? Elem::kU64 : Elem::kU32;
    const Elem wide = !is_signed(out.elem) ? word : word == Elem::kU64 ? Elem::kI64 : Elem::kI32;
    const auto as_word = [&](Value* bound) {
      Value* widened = b_.convert(bound, wide);
      return spread(b_.bitcast(widened, {word, {}}));
    };
    Value* low = as_word(op_.operands[0]);
    Value* range = b_.sub(as_word(op_.operands[1]), low);
    Value* part = b_.binary(Kind::kRemainder, bits(word, out.dims), range);
    return b_.convert(b_.bitcast(b_.add(low, part), {wide, out.dims}), out.elem);
  }

  // Two numbers of two draws (Box and Muller): sqrt(-2 log u) times cosine and sine of 2 pi v, with
  // u in (0, 1] and v in [0, 1) of 24 bits each.
  Value* normal(const Type& out) {
    constexpr int kBits = 24;
    const double scale = std::ldexp(1.0, -kBits);
    const int64_t pairs = (out.count() + 1) / 2;
    Value* drawn = b_.convert(shifted_right(bits(Elem::kU32, {2, pairs}), 32 - kBits), Elem::kF32);
    const auto row = [&](int64_t i) {
      return b_.reshape(b_.slice_dim(drawn, 0, i, i + 1), {pairs});
    };
    const auto times = [&](Value* x, double by) { return b_.mul(x, b_.splat(x->type, by)); };
    Value* one = b_.splat({Elem::kF32, {pairs}}, 1);
    Value* u = times(b_.add(row(0), one), scale);
    Value* angle = times(row(1), scale * 2 * std::numbers::pi);
    Value* radius = b_.unary(Kind::kSqrt, times(b_.unary(Kind::kLog, u), -2));
    Value* all = b_.concatenate({b_.mul(radius, b_.unary(Kind::kCosine, angle)),
                                 b_.mul(radius, b_.unary(Kind::kSine, angle))},
                                0);
    Value* z = b_.reshape(b_.slice_dim(all, 0, 0, out.count()), out.dims);
    Value* scaled = b_.mul(z, spread_f32(1));
    return b_.convert(b_.add(spread_f32(0), scaled), out.elem);
  }

  const Op& op_;
  Rewriter& rw_;
  Builder b_;
  Value* state_;
};

// Takes the state through regions.
class Drawer {
 public:
  bool run(Module& module) {
    Region& body = module.main->body;
    if (!find(body)) {
      return false;
    }
    std::vector<uint64_t> words = {module.rng_seed, 0};
    const Op& first = *body.ops.front();
    auto start = std::make_unique<Region>();
    rw_.place(*start, first);
    Value* state = rw_.constant(make_dense_of(kState, words));
    std::unique_ptr<Op> constant = std::move(start->ops.front());
    constant->parent = &body;
    body.ops.insert(body.ops.begin(), std::move(constant));
    region(body, state);
    return true;
  }

 private:
  bool find(const Region& region) {
    bool any = false;
    for (const auto& op : region.ops) {
      bool draws = op->kind == Kind::kRng;
      for (const auto& inner : op->regions) {
        draws = find(*inner) || draws;
      }
      if (draws) {
        drawing_.insert(op.get());
      }
      any = any || draws;
    }
    return any;
  }

  // The state behind the region.
  Value* region(Region& r, Value* state) {
    std::vector<std::unique_ptr<Op>> old;
    old.swap(r.ops);
    for (auto& op : old) {
      op->operands = mapped(std::move(op->operands), replaced_);
      if (op->kind == Kind::kRng) {
        rw_.place(r, *op);
        Draw draw(*op, state, rw_);
        replaced_[op->result()] = draw.run();
        state = draw.state();
        graveyard_.push_back(std::move(op));
        continue;
      }
      for (size_t i = 0; i < op->regions.size() && drawing_.count(op.get()) == 0; ++i) {
        region(*op->regions[i], nullptr);  // operands alone
      }
      if (drawing_.count(op.get()) != 0) {
        rw_.place(r, *op);
        state = through(*op, state);
      }
      r.ops.push_back(std::move(op));
    }
    return state;
  }

  Value* through(Op& op, Value* state) {
    switch (op.kind) {
      case Kind::kIf:
      case Kind::kCase:
        for (auto& branch : op.regions) {
          leave(*branch, state);
        }
        break;
      case Kind::kWhile: {
        op.operands.push_back(state);
        Value* seen = op.regions[0]->add_arg(kState);
        condition(*op.regions[0], seen);
        leave(*op.regions[1], op.regions[1]->add_arg(kState));
        break;
      }
      case Kind::kManualComputation: {
        auto& attrs = std::get<ManualAttrs>(op.attrs);
        const ShardingAttrs whole{.sharding = {}, .open = {false}};
        op.operands.push_back(state);
        attrs.in.push_back(whole);
        attrs.out.push_back(whole);
        leave(*op.regions[0], op.regions[0]->add_arg(kState));
        break;
      }
      default:
        throw Error("random numbers cannot be drawn inside of this op; draw them before it",
                    source_name(op.kind), op.loc);
    }
    op.add_result(kState);
    return op.results.back().get();
  }

  void leave(Region& r, Value* state) {
    Value* behind = region(r, state);
    r.terminator()->operands.push_back(behind);
  }

  // Gives no state back: its numbers are those of a counter that the body does not reach.
  void condition(Region& r, Value* state) {
    if (!find(r)) {
      region(r, nullptr);
      return;
    }
    const Op& first = *r.ops.front();
    Region start;
    rw_.place(start, first);
    const std::vector<uint64_t> apart = {0, uint64_t{1} << 63};
    Value* own = Builder(rw_).add(state, rw_.constant(make_dense_of(kState, apart)));
    std::vector<std::unique_ptr<Op>> made;
    made.swap(start.ops);
    for (size_t i = made.size(); i-- > 0;) {
      made[i]->parent = &r;
      r.ops.insert(r.ops.begin(), std::move(made[i]));
    }
    region(r, own);
  }

  Rewriter rw_;
  ValueMap replaced_;
  std::unordered_set<const Op*> drawing_;  // rng, and ops around it
  std::vector<std::unique_ptr<Op>> graveyard_;
};

}  // namespace

bool expand_rng(Module& module) { return Drawer().run(module); }

}  // namespace tpu::compiler
