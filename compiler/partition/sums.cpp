// See sums.hpp. One sweep, inner regions first: what leaves a loop may meet sums outside of it.
#include "partition/sums.hpp"

#include <algorithm>

#include "passes/rewriter.hpp"

namespace tpu::compiler {
namespace {

class SumMerger {
 public:
  SumMerger(Module& module, MoveLog& log) : module_(module), log_(log) {
    walk(module.main->body, [&](const Op& op) {
      for (const Value* v : op.operands) {
        ++uses_[v];
      }
    });
  }

  void run() {
    Rewriter().run(module_.main->body, [&](Op& op, Rewriter& rw) { return replaced(op, rw); });
  }

 private:
  bool used_once(const Value* v) const {
    const auto it = uses_.find(v);
    return it != uses_.end() && it->second == 1;
  }

  // The sum over cores of this region that makes the value for one user alone; null for others.
  const Op* sum(const Value* v, const Region* region) const {
    const Op* op = v->def;
    return op != nullptr && (op->kind == Kind::kAllReduce || op->kind == Kind::kReduceScatter) &&
                   op->parent == region && op->operands.size() == 1 && used_once(v) &&
                   simple_reducer(*op->regions[0]) == Kind::kAdd
               ? op
               : nullptr;
  }

  // Of which all cores get all.
  static const Op* whole(const Op* sum) {
    return sum != nullptr && sum->kind == Kind::kAllReduce ? sum : nullptr;
  }

  // The same of a value that may be rounded behind the sum, as contractions of bf16 are.
  const Op* rounded_sum(const Value* v, const Region* region) const {
    const Op* op = v->def;
    const bool rounds = op != nullptr && op->kind == Kind::kConvert && used_once(v) &&
                        op->parent == region && op->type().elem == Elem::kBf16 &&
                        op->operand_type(0).elem == Elem::kF32;
    return sum(rounds ? op->operands[0] : v, region);
  }

  // As the value that stood for it: rounded, or as it is.
  Value* rounded(Value* x, const Type& like, Rewriter& rw) {
    if (x->type == like) {
      return x;
    }
    Value* out = rw.make(Kind::kConvert, {x}, like);
    uses_[out] = uses_[x];
    uses_[x] = 1;
    return out;
  }

  // Over the same cores, and with the same parts for each.
  static bool same_sums(const Op& a, const Op& b) {
    const auto& x = a.as<CollectiveAttrs>();
    const auto& y = b.as<CollectiveAttrs>();
    return a.kind == b.kind && a.type() == b.type() && x.groups == y.groups &&
           (a.kind == Kind::kAllReduce || x.dim == y.dim);
  }

  // The sum of `x` over the same cores as `like`, to stand for `instead`.
  Value* again(const Op& like, Value* x, const Value* instead, Rewriter& rw) {
    const bool scatters = like.kind == Kind::kReduceScatter;
    Op* op = rw.make_op(like.kind, {x}, {scatters ? like.type() : x->type}, like.attrs);
    ValueMap map;
    clone_region(*like.regions[0], *op, map);
    uses_[op->result()] = uses_[instead];
    if (const auto it = log_.find(&like); it != log_.end()) {
      MovedArray moved = it->second;
      moved.type = x->type;
      moved.bytes = (scatters ? 1 : 2) * x->type.bytes();
      log_[op] = std::move(moved);
    } else {
      log_.erase(op);  // may lie where a dead op lay
    }
    return op->result();
  }

  std::vector<Value*> replaced(Op& op, Rewriter& rw) {
    switch (op.kind) {
      case Kind::kReshape:
      case Kind::kTranspose:
        return moved_behind(op, rw);
      case Kind::kAdd:
        return added(op, rw);
      case Kind::kWhile:
        return looped(op, rw);
      default:  // partial sums are added before it
        return {};
    }
  }

  std::vector<Value*> moved_behind(const Op& op, Rewriter& rw) {
    const Op* s = whole(rounded_sum(op.operands[0], op.parent));
    if (s == nullptr) {
      return {};
    }
    const Value* given = s->operands[0];
    Value* x = rw.make(op.kind, {s->operands[0]}, {given->type.elem, op.type().dims}, op.attrs);
    return {rounded(again(*s, x, op.result(), rw), op.type(), rw)};
  }

  // Of two sums over the same cores, to stand for `instead`; null for others.
  Value* joined(const Op* a, const Op* b, const Value* instead, Rewriter& rw) {
    if (a == nullptr || b == nullptr || !same_sums(*a, *b)) {
      return nullptr;
    }
    const auto& terms = a->operands;
    Value* x = rw.make(Kind::kAdd, {terms[0], b->operands[0]}, terms[0]->type);
    return rounded(again(*a, x, instead, rw), instead->type, rw);
  }

  std::vector<Value*> added(const Op& op, Rewriter& rw) {
    const Op* a = rounded_sum(op.operands[0], op.parent);
    const Op* b = rounded_sum(op.operands[1], op.parent);
    if (Value* both = joined(a, b, op.result(), rw)) {
      return {both};
    }
    // other + sum + sum
    for (const size_t i : {0u, 1u}) {
      const Op* last = i == 0 ? a : b;
      const Op* before = op.operands[1 - i]->def;
      if (last == nullptr || before == nullptr || before->kind != Kind::kAdd ||
          !used_once(before->result())) {
        continue;
      }
      for (const size_t k : {0u, 1u}) {
        const Op* first = rounded_sum(before->operands[k], op.parent);
        if (Value* both = joined(last, first, before->operands[k], rw)) {
          Value* out = rw.make(Kind::kAdd, {before->operands[1 - k], both}, op.type());
          uses_[out] = uses_[op.result()];
          return {out};
        }
      }
    }
    return {};
  }

  // The sum that carried value i grows by each time, or of which it takes another place of zeros
  // each time, if nothing else reads the value. Places are the same on all cores of the sum if the
  // pass has made it; a shard_map over some axes may have others along these.
  const Op* growth(const Op& loop, size_t i) const {
    const Value* arg = loop.regions[1]->args[i].get();
    const Value* next = loop.regions[1]->terminator()->operands[i];
    if (uses_.contains(loop.regions[0]->args[i].get()) || !used_once(arg) || !used_once(next) ||
        next->def == nullptr) {
      return nullptr;
    }
    const auto& terms = next->def->operands;
    const Region* body = loop.regions[1].get();
    if (next->def->kind == Kind::kAdd) {
      const Value* term = terms[0] == arg ? terms[1] : terms[0];
      return terms[0] == arg || terms[1] == arg ? whole(sum(term, body)) : nullptr;
    }
    if (next->def->kind != Kind::kDynamicUpdateSlice || terms[0] != arg ||
        !is_zero(loop.operands[i])) {
      return nullptr;
    }
    const Op* stored = whole(sum(terms[1], body));
    return log_.contains(stored) ? stored : nullptr;
  }

  std::vector<Value*> looped(Op& op, Rewriter& rw) {
    std::vector<const Op*> sums;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      sums.push_back(growth(op, i));
    }
    if (std::all_of(sums.begin(), sums.end(), [](const Op* s) { return s == nullptr; })) {
      return {};
    }
    std::vector<Value*> operands = op.operands;
    std::vector<Type> types;
    for (size_t i = 0; i < sums.size(); ++i) {
      types.push_back(op.type(i));
      if (sums[i] != nullptr) {
        operands[i] = rw.constant(make_splat_int(types[i], 0));
        Op& grows = *op.regions[1]->terminator()->operands[i]->def;
        std::replace(grows.operands.begin(), grows.operands.end(), sums[i]->result(),
                     sums[i]->operands[0]);
      }
    }
    Op* made = rw.make_op(op.kind, std::move(operands), std::move(types), op.attrs);
    made->regions = std::move(op.regions);
    std::vector<Value*> out;
    for (size_t i = 0; i < sums.size(); ++i) {
      made->regions[0]->parent = made->regions[1]->parent = made;
      out.push_back(made->result(i));
      uses_[out[i]] = uses_[op.result(i)];
      if (sums[i] != nullptr) {
        uses_[out[i]] = 1;
        out[i] = again(*sums[i], out[i], op.result(i), rw);
        out[i] = after(op.operands[i], out[i], rw);
        uses_[out[i]] = uses_[op.result(i)];
      }
    }
    return out;
  }

  // What the loop began with, added behind it.
  static Value* after(Value* first, Value* sum, Rewriter& rw) {
    return is_zero(first) ? sum : rw.make(Kind::kAdd, {first, sum}, sum->type);
  }

  Module& module_;
  MoveLog& log_;
  std::unordered_map<const Value*, int> uses_;
};

}  // namespace

void merge_sums(Module& module, MoveLog& log) { SumMerger(module, log).run(); }

}  // namespace tpu::compiler
