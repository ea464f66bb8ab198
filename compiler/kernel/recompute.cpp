// Recomputation of cheap values, see recompute.hpp. Values are looked at from the last one to the
// first: when its turn comes, all readers of a value are known.
#include "kernel/recompute.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>

#include "ir/op_traits.hpp"
#include "kernel/kernel_index.hpp"
#include "program/estimate.hpp"

namespace tpu::compiler {
namespace {

constexpr int64_t kLeastBytes = int64_t{4} << 20;  // smaller values may well stay in VMEM
constexpr size_t kMostOps = 16;  // recomputed for one value; vector time is hidden behind HBM
constexpr int kMostRounds = 3;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;

bool is_recomputable(Kind kind) { return has_trait(kind, trait::kCheap); }

// Exponentials in f32, such as those of a loss over a large vocabulary, of logits that are stored
// in half as many bytes.
bool is_wide_exp(const Op& op) {
  return op.kind == Kind::kExp && op.result()->type.elem == Elem::kF32;
}

// In ALU slots.
constexpr int64_t kExpOps = 16;
int64_t cost_of(const Op* op) { return op->kind == Kind::kExp ? kExpOps : 1; }

int64_t cost_of(const std::vector<const Op*>& ops) {
  return std::accumulate(ops.begin(), ops.end(), int64_t{0},
                         [](int64_t sum, const Op* op) { return sum + cost_of(op); });
}

int64_t bytes_of(const Value* v) { return v->type.count() * elem_bytes(v->type.elem); }

bool contains(const std::vector<const Value*>& values, const Value* v) {
  return std::find(values.begin(), values.end(), v) != values.end();
}

// What a loop kernel costs, in bytes of HBM: what it moves or what HBM would move in the time that
// it computes, whichever is more.
class LoopCost {
 public:
  explicit LoopCost(const spec::BoardParams& board)
      : lanes_(static_cast<double>(board.vpu.lanes)),
        block_(static_cast<double>(board.vpu.lanes * board.vpu.sublanes)),
        bytes_of_op_(hbm_bytes_per_cycle(board) / static_cast<double>(board.vpu.alus)) {}

  double operator()(const Kernel& k, int64_t more_bytes = 0, int64_t more_ops = 0) const {
    auto bytes = static_cast<double>(more_bytes);
    for (const Value* v : k.reads) {
      bytes += static_cast<double>(bytes_of(v));
    }
    for (const Value* v : k.writes) {
      bytes += static_cast<double>(bytes_of(v));
    }
    double waste = 1;  // lanes beyond the innermost loop
    if (k.loop().nest.loops.size() > 1) {
      const auto n = static_cast<double>(k.loop().nest.loops.back().n);
      waste = std::ceil(n / lanes_) * lanes_ / n;
    }
    const double blocks = static_cast<double>(k.loop().nest.elements()) / block_ * waste;
    const auto ops = static_cast<double>(cost_of(k.ops) + more_ops);
    return std::max(bytes, blocks * ops * bytes_of_op_);
  }

 private:
  const double lanes_, block_;
  const double bytes_of_op_;  // while one op of a block passes the ALU slots
};

class Recomputer {
 public:
  Recomputer(KernelProgram& program, const Function& main, const spec::BoardParams& board,
             double byte_price, PassLog* log)
      : program_(program), index_(program), cost_(board), byte_price_(byte_price), log_(log) {
    const Op* ret = main.body.terminator();
    for (size_t i = 0; i < main.body.args.size(); ++i) {
      arguments_.insert(main.body.args[i].get());
      if (const int result = main.args[i].alias_result; result >= 0) {
        successor_[main.body.args[i].get()] = ret->operands[static_cast<size_t>(result)];
      }
    }
    for (size_t i = 0; i < main.body.ops.size(); ++i) {
      place_[main.body.ops[i].get()] = i;
    }
  }

  // Again, since a kernel that has taken over one value may read what another one needs.
  void run() {
    for (int round = 0; round < kMostRounds && sweep(); ++round) {
    }
  }

 private:
  // Large values of loop kernels, from the last one to the first. True if anything was changed.
  bool sweep() {
    std::vector<const Value*> candidates;
    for (const Kernel& k : program_.kernels) {
      if (k.kind == KernelClass::kLoop) {
        for (const Value* v : k.writes) {
          if ((can_move(v->def) || is_wide_exp(*v->def)) && bytes_of(v) >= kLeastBytes) {
            candidates.push_back(v);
          }
        }
      }
    }
    std::sort(candidates.begin(), candidates.end(), [&](const Value* a, const Value* b) {
      return place_.at(a->def) > place_.at(b->def);
    });
    bool changed = false;
    for (const Value* v : candidates) {
      changed = visit(v) || changed;
    }
    for (const Value* v : candidates) {
      changed = exchange(v) || changed;
    }
    return changed;
  }

  // What kernel `k` would compute and read in place of values. Both are few, and each there once.
  struct Cone {
    int64_t bytes = 0;  // of additional reads
    std::vector<const Op*> ops;
    std::vector<const Value*> leaves;

    void add_bytes(int64_t more) { bytes = std::min(kNever, bytes + more); }
  };

  // Sums of a contraction that one loop kernel reads may never reach memory: that kernel will work
  // on the blocks of the contraction.
  bool is_stored(const Value* v) const {
    if (v == assumed_ || arguments_.contains(v)) {
      return true;
    }
    const std::vector<Kernel*>& makers = index_.makers(v);
    return std::any_of(makers.begin(), makers.end(), [&](const Kernel* k) {
      return contains(k->writes, v) &&
             (k->kind != KernelClass::kContract || v->type.elem == Elem::kBf16 || !has_one_loop(v));
    });
  }

  // True if nobody reads the value, or one loop kernel once.
  bool has_one_loop(const Value* v) const {
    const std::vector<Kernel*>& reads = index_.reads(v);
    return reads.empty() || (reads.size() == 1 && reads[0]->kind == KernelClass::kLoop);
  }

  // A copy that is made later than kernel `k` (it came after its ops were placed) is looked
  // through.
  bool is_copied(const Value* v, const Kernel& k) const {
    return program_.copied.contains(v) &&
           (index_.made_before(k.order, v) ||
            std::find(k.ops.begin(), k.ops.end(), v->def) != k.ops.end());
  }

  NestContext seen_by(const Kernel& k) const {
    NestContext context;
    context.is_copied = [this, &k](const Value* v) { return is_copied(v, k); };
    return context;
  }

  // Arguments and constants are there from the start; a donated argument until its result is made,
  // since a later reader would keep that from being written in place.
  bool can_read(const Kernel& k, const Value* v) const {
    if (const auto it = successor_.find(v); it != successor_.end()) {
      const Value* result = view_root(it->second, seen_by(k));
      return result->def != nullptr && !index_.made_before(k.order + 1, result);
    }
    return v->def == nullptr || index_.made_before(k.order, v) ||
           (v->def->kind == Kind::kConstant && !program_.copied.contains(v));
  }

  bool can_move(const Op* op) const { return is_recomputable(op->kind) && place_.contains(op); }

  // Adds to `cone`, which holds what is read and computed already, what `k` would for `v`; the
  // value itself is not read. Bytes of kNever: impossible.
  void add_cone(const Value* v, const Kernel& k, Cone& cone) const {
    cone.add_bytes(grow({k, seen_by(k)}, v, true, kNever - 1, cone));
  }

  struct Reader {
    const Kernel& kernel;
    const NestContext context;
  };

  // The bytes that `v` adds; what is computed and read for it is appended to `cone`. Nobody asks
  // for a way of more than `limit` bytes, so that a search ends as soon as it has passed that; the
  // answer is then more than the limit too.
  int64_t grow(const Reader& reader, const Value* v, bool top, int64_t limit, Cone& cone) const {
    const Kernel& k = reader.kernel;
    const Value* root = view_root(v, reader.context);
    if (root->def != nullptr && is_cheap(root->def->kind) && !is_copied(root, k)) {
      return 0;  // an iota or a constant
    }
    if (!top && is_there(root, k, cone)) {
      return 0;
    }
    const bool readable = is_stored(root) && (root->def != nullptr || can_read(k, root));
    const int64_t read_bytes = !top && readable ? bytes_of(root) : kNever;
    const size_t ops = cone.ops.size(), leaves = cone.leaves.size();
    const bool movable =
        root->def != nullptr &&
        (can_move(root->def) || (top && is_wide_exp(*root->def) && place_.contains(root->def)));
    if (root == v && movable && ops < kMostOps) {
      const int64_t bytes = compute(reader, root->def, std::min(read_bytes, limit), cone);
      if (bytes <= std::min(read_bytes, limit)) {
        return bytes;
      }
      cone.ops.resize(ops);
      cone.leaves.resize(leaves);
    }
    if (!contains(cone.leaves, root)) {
      cone.leaves.push_back(root);
    }
    return read_bytes;
  }

  // The bytes that the operands of `op` add; more than `limit` as soon as they pass it.
  int64_t compute(const Reader& reader, const Op* op, int64_t limit, Cone& cone) const {
    if (std::find(cone.ops.begin(), cone.ops.end(), op) == cone.ops.end()) {
      cone.ops.push_back(op);
    }
    int64_t bytes = 0;
    for (const Value* operand : op->operands) {
      bytes += grow(reader, operand, false, limit - bytes, cone);
      if (bytes > limit) {
        break;
      }
    }
    return bytes;
  }

  // Kernel `k` has the value, or will once it has `cone`.
  bool is_there(const Value* root, const Kernel& k, const Cone& cone) const {
    const auto computes = [root](const std::vector<const Op*>& ops) {
      return std::find(ops.begin(), ops.end(), root->def) != ops.end();
    };
    return (root->def != nullptr && (computes(cone.ops) || computes(k.ops))) ||
           contains(cone.leaves, root) || contains(k.reads, root);
  }

  // Kernels that read any of the values, in order.
  std::vector<Kernel*> readers_of(const std::vector<const Value*>& values) const {
    std::vector<Kernel*> out;
    for (const Value* v : values) {
      const std::vector<Kernel*>& reads = index_.reads(v);
      out.insert(out.end(), reads.begin(), reads.end());
    }
    std::sort(out.begin(), out.end(),
              [](const Kernel* a, const Kernel* b) { return a->order < b->order; });
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  // The kernel that keeps the value of a loop kernel in memory; null if none does.
  const Kernel* writer(const Value* v) const {
    const std::vector<Kernel*>& makers = index_.makers(v);
    const auto it = std::find_if(makers.begin(), makers.end(),
                                 [&](const Kernel* k) { return contains(k->writes, v); });
    return it == makers.end() ? nullptr : *it;
  }

  double price_of(int64_t bytes) const { return byte_price_ * static_cast<double>(bytes); }

  bool visit(const Value* v) {
    const Kernel* maker = writer(v);
    if (maker == nullptr) {
      return false;  // not kept any more, now that a later value is recomputed
    }
    bool kept = false;  // a kernel of another kind needs it in memory
    std::vector<std::pair<Kernel*, Cone>> plans;
    for (Kernel* k : readers_of({v})) {
      if (k->kind == KernelClass::kLoop) {
        add_cone(v, *k, plans.emplace_back(k, Cone{}).second);
      } else {
        kept = true;
      }
    }
    double gain_of_all =
        kept ? 0 : cost_(*maker) - cost_(*maker, -bytes_of(v)) + price_of(bytes_of(v));
    std::vector<double> gain;
    for (const auto& [k, cone] : plans) {
      const bool possible =
          cone.bytes < kNever && (!is_wide_exp(*v->def) || cone.bytes < bytes_of(v));
      gain.push_back(possible ? cost_(*k) - cost_(*k, cone.bytes - bytes_of(v), cost_of(cone.ops))
                              : -static_cast<double>(kNever));
      gain_of_all += gain.back();
    }
    const bool all = !kept && gain_of_all > 0;
    bool changed = false;
    for (size_t i = 0; i < plans.size(); ++i) {
      if (!all && gain[i] <= 0) {
        gave_up("reading a value again is cheaper than computing it again");
      } else if (take_over(*plans[i].first, plans[i].second)) {
        changed = true;
      } else {
        gave_up("the kernel that reads a value cannot hold what computes it");
      }
    }
    if (changed) {
      forget_unused();
    }
    return changed;
  }

  struct Exchange {
    const Value* source = nullptr;
    std::vector<std::pair<Kernel*, Cone>> readers;
    double gain = 0;
  };

  // Large values that kernel `k` writes for loop kernels alone.
  std::vector<const Value*> exchangeable(const Kernel& k) const {
    std::vector<const Value*> out;
    for (const Value* v : k.writes) {
      const std::vector<Kernel*>& reads = index_.reads(v);
      if (bytes_of(v) >= kLeastBytes && can_move(v->def) &&
          std::all_of(reads.begin(), reads.end(),
                      [](const Kernel* r) { return r->kind == KernelClass::kLoop; })) {
        out.push_back(v);
      }
    }
    return out;
  }

  // What it brings if `maker` writes `source` in place of `values`.
  std::optional<Exchange> weigh(const Kernel& maker, const Value* source,
                                const std::vector<const Value*>& values) {
    Exchange e;
    e.source = source;
    int64_t written = bytes_of(source);
    assumed_ = source;
    for (const Value* v : values) {
      written -= bytes_of(v);
    }
    e.gain = cost_(maker) - cost_(maker, written) - price_of(written);
    bool possible = true;
    for (Kernel* k : readers_of(values)) {
      Cone all;
      int64_t saved = 0;
      for (const Value* v : values) {
        if (contains(k->reads, v)) {
          add_cone(v, *k, all);
          saved += bytes_of(v);
        }
      }
      possible = possible && all.bytes < kNever;
      e.gain += cost_(*k) - cost_(*k, all.bytes - saved, cost_of(all.ops));
      e.readers.emplace_back(k, std::move(all));
    }
    assumed_ = nullptr;
    return possible && e.gain > 0 ? std::optional(std::move(e)) : std::nullopt;
  }

  // A kernel may write what several values are made of in place of these: the sum before it is
  // scaled for two layers and widened for a third.
  bool exchange(const Value* v) {
    const Kernel* maker = writer(v);
    if (maker == nullptr) {
      return false;
    }
    const std::vector<const Value*> values = exchangeable(*maker);
    std::optional<Exchange> best;
    for (const Op* op : maker->ops) {
      const Value* source = op->result();
      if (values.empty() || contains(maker->writes, source) ||
          maker->loop().recomputed.contains(op) ||
          source->type.count() != values[0]->type.count()) {
        continue;
      }
      auto e = weigh(*maker, source, values);
      if (e && (!best || e->gain > best->gain)) {
        best = std::move(e);
      }
    }
    if (!best) {
      return false;
    }
    std::vector<std::pair<Kernel*, Kernel>> before;
    for (const auto& [k, cone] : best->readers) {
      before.emplace_back(k, *k);
      if (!take_over(*k, cone)) {
        for (auto& [reader, old] : before) {
          index_.replace(*reader, std::move(old));
        }
        return false;
      }
    }
    forget_unused();
    return true;
  }

  // Puts the ops into the kernel if a command can hold it then.
  bool take_over(Kernel& k, const Cone& cone) {
    Kernel wider = k;
    for (const Op* op : cone.ops) {
      if (std::find(wider.ops.begin(), wider.ops.end(), op) == wider.ops.end()) {
        wider.ops.push_back(op);
        wider.as<LoopPart>().recomputed.insert(op);
      }
    }
    if (!rebuild(wider)) {
      return false;
    }
    index_.replace(k, std::move(wider));
    return true;
  }

  // Brings the ops into program order and makes the nest anew. False if it does not fit.
  bool rebuild(Kernel& k) const {
    if (loop_weight(k.ops) > kMaxLoopWeight ||
        !std::all_of(k.ops.begin(), k.ops.end(),
                     [&](const Op* op) { return place_.contains(op); })) {
      return false;
    }
    std::sort(k.ops.begin(), k.ops.end(),
              [&](const Op* a, const Op* b) { return place_.at(a) < place_.at(b); });
    try {
      auto nest = build_nest(k.ops, k.loop().domain, seen_by(k));
      if (!nest || !has_few_accesses(*nest) ||
          !std::all_of(nest->accesses.begin(), nest->accesses.end(),
                       [&](const NestAccess& a) { return can_read(k, a.value); })) {
        return false;
      }
      k.as<LoopPart>().nest = std::move(*nest);
    } catch (const NeedsCopy&) {
      return false;
    }
    return fits_command(k);
  }

  // Drops ops that nobody reads any more, and with them their operands; from the last kernel on,
  // since the ops of an earlier one may have lived for a later one alone.
  void forget_unused() {
    for (auto it = program_.kernels.end(); it != program_.kernels.begin();) {
      --it;
      if (!index_.is_changed(*it)) {
        continue;
      }
      std::set<const Value*> live(it->writes.begin(), it->writes.end());
      std::vector<const Op*> kept;
      for (auto op = it->ops.rbegin(); op != it->ops.rend(); ++op) {
        const auto& results = (*op)->results;
        if (std::none_of(results.begin(), results.end(),
                         [&](const auto& r) { return live.contains(r.get()); })) {
          continue;
        }
        kept.push_back(*op);
        for (const Value* operand : (*op)->operands) {
          live.insert(operand);
          live.insert(view_root(operand, seen_by(*it)));
        }
      }
      if (kept.size() == it->ops.size()) {
        index_.settle(*it);
        continue;
      }
      if (kept.empty()) {
        it = index_.erase(it);
      } else {
        Kernel smaller = *it;
        smaller.ops.assign(kept.rbegin(), kept.rend());
        std::erase_if(smaller.as<LoopPart>().recomputed, [&](const Op* op) {
          return std::find(kept.begin(), kept.end(), op) == kept.end();
        });
        if (!rebuild(smaller)) {
          continue;
        }
        index_.replace(*it, std::move(smaller));
      }
    }
    renumber(program_);
  }

  void gave_up(std::string_view why) const {
    if (log_ != nullptr) {
      log_->gave_up(why);
    }
  }

  KernelProgram& program_;
  KernelIndex index_;
  const LoopCost cost_;
  const double byte_price_;
  PassLog* const log_;
  std::set<const Value*> arguments_;
  std::unordered_map<const Value*, const Value*> successor_;  // of a donated one: its result
  const Value* assumed_ = nullptr;                            // looked at as if it were stored
  std::unordered_map<const Op*, size_t> place_;               // looked up only
};

}  // namespace

void recompute_values(KernelProgram& program, const Function& main, const spec::BoardParams& board,
                      double byte_price, PassLog* log) {
  Recomputer(program, main, board, byte_price, log).run();
}

}  // namespace tpu::compiler
