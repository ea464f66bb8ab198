// Kernel pass `form`: greedy fusion in program order. An elementwise op joins the first kernel,
// behind all producers of its operands, whose nest still fits with it. Ops on arguments alone sink
// to their first consumer. Collectives of equal kind that do not depend on each other form one
// bucket.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "kernel/fusion.hpp"
#include "kernel/generator.hpp"
#include "kernel/kernel_passes.hpp"
#include "kernel/late_ops.hpp"
#include "kernel/place_contraction.hpp"
#include "kernel/place_control.hpp"
#include "kernel/place_move.hpp"
#include "kernel/producers.hpp"

namespace tpu::compiler {

[[noreturn]] void unsupported(const Op& op, const std::string& why) {
  throw Error(why, source_name(op.kind), op.loc);
}

namespace {

constexpr int kMaxCopies = 100;       // of views of views: each is made while the next one waits
constexpr int64_t kNearElements = 8;  // in a granule with some others that are read, too
constexpr int64_t kCopiedElements = 1 << 16;  // smaller arrays stay in VMEM
constexpr int64_t kEagerElements = 1024;  // kernels up to this size are placed as early as possible
constexpr int64_t kApartElements = 1 << 19;  // updates from this size on share values, not loops
constexpr int64_t kEarlyBits = 1 << 20;  // and masks of random bits, to join what comes before them

class RegionFusion : public Fusion {
 public:
  RegionFusion(const Module& module, const Region& region, const ControlFacts& facts,
               RegionFusion* parent, CoreClasses together, const FormOptions& options)
      : module_(module),
        region_(region),
        facts_(facts),
        parent_(parent),
        together_(std::move(together)),
        options_(options) {
    context_.is_copied = [this](const Value* v) { return is_copied(v); };
    uses_ = compute_uses(region);
    has_products_ = std::ranges::any_of(
        region.ops, [](const auto& op) { return op->kind == Kind::kDotGeneral; });
    for (const auto& arg : module.main->body.args) {
      if (options.updates_apart && arg->type.count() >= kApartElements) {
        state_counts_.insert(arg->type.count());
      }
    }
    for (const auto& op : region.ops) {
      if (op->kind == Kind::kOptimizationBarrier) {
        leave_out_awaited(*op);
      }
    }
  }

  KernelProgram run() {
    BucketOrder order = order_buckets(region_, options_.piece, options_.bucket_bytes);
    program_.buckets = std::move(order.buckets);
    program_.piece = options_.piece;
    for (const OrderStep& step : order.steps) {
      if (step.bucket >= 0) {
        const Bucket& bucket = program_.buckets[static_cast<size_t>(step.bucket)];
        check_together(*bucket.ops[0]);
        place_all_reduce(bucket, options_.piece, *this);
      } else {
        visit(step.op);
      }
    }
    const Op* ret = region_.terminator();
    if (parent_ == nullptr) {
      for (size_t i = 0; i < ret->operands.size(); ++i) {
        if (!facts_.result_stacks().holds(i)) {
          place_result(ret->operands[i], i);
        }
      }
    } else {
      // All that is read at the end is made first: a copy may go over an argument that the kernel
      // of a waiting op reads.
      std::vector<Kernel> last = loop_results();
      last.push_back(yield_of(*ret, facts_.counted(*region_.parent), facts_, *this));
      for (Kernel& k : last) {
        insert(std::move(k), -1);
      }
    }
    finish();
    return std::move(program_);
  }

  void materialise(const Value* v) override { need(v, -1); }
  void add(Kernel kernel) override {
    std::vector<const Value*> made = kernel.writes;
    if (kernel.out != nullptr && kernel.out != kernel.ops[0]->result()) {
      copied_.insert(kernel.out);  // a view of the result is written in its place
      made.push_back(kernel.ops[0]->result());
    }
    Kernel* at = insert(std::move(kernel), -1);
    for (const Value* v : made) {
      producers_.note(v, at);
    }
  }
  void give(Kernel kernel) override {
    producers_.give(kernel.out);
    program_.kernels.push_front(std::move(kernel));
    renumber(program_, program_.kernels.begin());
    note_loop(program_.kernels.front());
    producers_.forget_latest();
  }
  std::optional<NestAccess> view(const Value* v) override {
    try {
      return resolve_view(v, context_);
    } catch (const NeedsCopy&) {
      return std::nullopt;
    }
  }
  const Op* only_reader(const Value* v) override {
    const auto it = uses_.find(v);
    return it == uses_.end() || it->second.size() != 1 ? nullptr : it->second.front();
  }
  const Value* transposed(Value* v, const Dims& order, const LocRef& loc) override {
    Type type{v->type.elem, {}};
    for (const int64_t d : order) {
      type.dims.push_back(v->type.dims[static_cast<size_t>(d)]);
    }
    const Op* made = made_ops_->append(Kind::kTranspose, {v}, {type}, DimsAttrs{order}, loc);
    copy(made->result());
    return made->result();
  }
  KernelProgram form(const Region& region, const CoreClasses& together) override {
    return RegionFusion(module_, region, facts_, this, together, options_).run();
  }

 private:
  // A barrier reads nothing of what it only waits for. Operands may repeat.
  void leave_out_awaited(const Op& barrier) {
    std::unordered_set<const Value*> read;
    for (size_t i = 0; i < barrier.operands.size(); ++i) {
      if (uses_.contains(barrier.result(i))) {
        read.insert(barrier.operands[i]);
      }
    }
    for (const Value* v : barrier.operands) {
      if (!read.contains(v)) {
        std::erase(uses_[v], &barrier);
      }
    }
  }
  bool is_copied(const Value* v) const {
    return copied_.contains(v) || (parent_ != nullptr && parent_->is_copied(v));
  }
  // Members of a group come to a collective together, or some would wait for ever.
  void check_together(const Op& op) const {
    if (op.kind == Kind::kRecv && op.as<HostAttrs>().partition >= 0 && !together_.empty()) {
      unsupported(op,
                  "a callback to the host that gives all cores its result, inside while, if or "
                  "case, needs a condition that is the same on all cores: make it from replicated "
                  "values, or call it inside of jax.shard_map");
    }
    if (!is_collective(op.kind) || together_.empty()) {
      return;
    }
    const auto at = [&](int64_t core) { return together_[static_cast<size_t>(core)]; };
    bool legal = true;
    if (op.kind == Kind::kCollectivePermute) {
      for (const auto& [source, target] : op.as<PermuteAttrs>().pairs) {
        legal = legal && at(source) == at(target);
      }
    } else {
      const Groups& groups = op.as<CollectiveAttrs>().groups;
      legal = !groups.empty();
      for (const auto& group : groups) {
        legal = legal && std::all_of(group.begin(), group.end(),
                                     [&](int64_t core) { return at(core) == at(group[0]); });
      }
    }
    if (!legal) {
      unsupported(op,
                  "a collective inside while, if or case needs a condition that is the same on all "
                  "cores of each of its groups: make it from replicated values or from results of "
                  "all_reduce over these cores");
    }
  }

  void visit(const Op* op) {
    if (is_cheap(op->kind) || facts_.skipped(*op) ||
        facts_.result_stacks().results(*op) != nullptr) {
      return;
    }
    check_together(*op);
    if (is_elementwise(op->kind)) {
      place_or_sink(op);
      return;
    }
    switch (op->kind) {
      case Kind::kReduce:
        place_reduce(op);
        return;
      case Kind::kDotGeneral:
        place_contraction(*op, *this);
        return;
      case Kind::kConcatenate:
        place_packed(*op, KernelClass::kConcatenate, *this);
        return;
      case Kind::kPad:
        place_pad(*op, *this);
        return;
      case Kind::kAllGather:
      case Kind::kAllToAll:
      case Kind::kCollectivePermute:
        place_packed(*op, KernelClass::kExchange, *this);
        return;
      case Kind::kIndexedRead:
      case Kind::kIndexedWrite:
      case Kind::kIndexedCombine:
        place_packed(*op, KernelClass::kIndexed, *this);
        return;
      case Kind::kSend:
      case Kind::kRecv:
        place_host(*op, *this);
        return;
      case Kind::kDynamicSlice:
        place_dynamic_slice(*op, facts_, *this);
        return;
      case Kind::kDynamicUpdateSlice:
        place_dynamic_update(*op, facts_, *this);
        return;
      case Kind::kWhile:
      case Kind::kIf:
      case Kind::kCase:
        place_control(*op, facts_, together_, *this);
        return;
      default:
        unsupported(*op, "this op is not supported by the core compiler");
    }
  }

  void place_or_sink(const Op* op) {
    if (producers_.latest_of(*op) < 0 && op->type().count() > kEagerElements) {
      return;  // waits for a consumer
    }
    place_loop(op);
  }

  // Places the waiting ops that `v` needs. Element-by-element operands of `consumer` are placed
  // near it: not before kernel `from`.
  void need(const Value* v, int from) {
    const Value* root = view_root(v, context_);
    if (producers_.waits(root)) {
      place_loop(root->def, from);
    }
  }

  // An op on its way to a kernel, behind the waiting ops that it needs.
  struct Placing {
    const Op* op;
    int from, pos;
    size_t operand;  // the next to look at
  };

  void place_loop(const Op* first, int first_from = -1) {
    std::vector<Placing> work;
    const auto begin = [&](const Op* op, int from) {
      if (!producers_.made(op->result())) {
        from = std::max(from, late_.from(*op));
        work.push_back({op, from, std::max(from, producers_.latest_of(*op)), 0});
      }
    };
    begin(first, first_from);
    while (!work.empty()) {
      Placing& top = work.back();
      const Op* op = top.op;
      if (top.operand < op->operands.size()) {
        const Value* v = op->operands[top.operand++];
        const Value* root = view_root(v, context_);
        if (producers_.waits(root)) {
          begin(root->def, v->type.count() == op->type().count() ? top.pos : -1);
        }
        continue;
      }
      const Dims& domain = op->kind == Kind::kReduce ? op->operand_type(0).dims : op->type().dims;
      const int from = top.from;
      work.pop_back();
      put(op, domain, std::max(from, producers_.latest_of(*op)), !work.empty());
    }
  }

  // True if each element of the innermost dimension is in another granule, so that a block of it is
  // read element by element.
  static bool is_scattered(const View& view, const Dims& dims) {
    for (size_t d = dims.size(); d-- > 0;) {
      if (dims[d] > 1) {
        return std::abs(view.stride[d]) > kNearElements;
      }
    }
    return false;
  }

  // Copies what an op reads scattered and several times, such as a transposed bias of all heads for
  // each example: the part of the view that does not repeat it.
  // Loops of programs without products take tiles of both dimensions. A copy needs memory.
  void copy_repeated(const Op& op) {
    if (!has_products_ || options_.late_constants) {
      return;
    }
    for (const Value* operand : op.operands) {
      const Value* v = barred(operand);
      const Value* root = view_root(v, context_);
      const int64_t count = root->type.count();
      if (count < kCopiedElements || v->type.count() < 2 * count ||
          (root->def != nullptr && is_cheap(root->def->kind) && !is_copied(root))) {
        continue;
      }
      const std::optional<NestAccess> access = view(v);
      if (!access || !is_scattered(access->view, v->type.dims)) {
        continue;
      }
      while (v->type.count() > count && v->def != nullptr && is_cheap(v->def->kind)) {
        v = barred(v->def->operands.at(0));
      }
      if (v != root && v->type.count() == count) {
        copy(v);
      }
    }
  }

  // Adds the op to a kernel at or behind `pos`, or makes a new one.
  void put(const Op* op, const Dims& domain, int pos, bool for_consumer) {
    if (is_elementwise(op->kind)) {
      copy_repeated(*op);
      pos = std::max(pos, producers_.latest_of(*op));
    }
    const int64_t count = Type{Elem::kF32, domain}.count();
    // Sums join whatever has their loops: pass `recompute` finds what they share.
    const bool apart = state_counts_.contains(count) && is_float(op->type().elem) &&
                       !for_consumer && op->kind != Kind::kReduce && reads_made(*op);
    const bool generator = begins_generator(*op);
    const size_t weight = generator ? kGeneratorWeight : 1;
    const int hidden = generator ? behind_contraction(program_, domain) : -1;
    pos = std::max(pos, hidden);
    std::vector<Joinable>& loops = loops_[count];
    for (auto at = std::ranges::lower_bound(loops, pos, {}, order_of); at != loops.end(); ++at) {
      Kernel& k = *at->kernel;
      if (at->weight + weight > kMaxLoopWeight || !has_room(k, *op) ||
          (apart && !shares_value(k, *op)) || (op->kind == Kind::kReduce && hidden_.contains(&k))) {
        continue;
      }
      std::vector<const Op*> ops = k.ops;
      ops.push_back(op);
      if (joins(k, ops, domain)) {
        at->weight = loop_weight(k.ops);
        if (k.order == hidden) {
          hidden_.insert(&k);
        }
        producers_.note(op->result(), &k);
        late_.note(*op, &k);
        producers_.forget_latest();
        return;
      }
    }
    Kernel fresh(KernelClass::kLoop);
    fresh.as<LoopPart>().domain = domain;
    fresh.ops = {op};
    fresh.as<LoopPart>().nest = nest_or_copy(fresh.ops, domain);
    const bool early = count <= kEagerElements || (generator && hidden < 0 && count <= kEarlyBits);
    Kernel* k = insert(std::move(fresh), early ? behind(op, pos) : -1);
    if (hidden >= 0) {
      hidden_.insert(k);
    }
    producers_.note(op->result(), k);
    late_.note(*op, k);
  }

  bool is_large_made(const Value* root) const {
    return root->type.count() > kEagerElements && producers_.made(root);
  }

  bool reads_made(const Op& op) const {
    return std::ranges::any_of(
        op.operands, [&](const Value* v) { return is_large_made(view_root(v, context_)); });
  }

  // Kernel `k` makes or reads what the op reads, or it reads nothing large, as one of random bits.
  // A kernel of two that share nothing saves no load, and has no room for what follows each of
  // them: optimizers take one step after the other for all parameters.
  bool shares_value(const Kernel& k, const Op& op) const {
    const auto& accesses = k.loop().nest.accesses;
    const auto shared = [&](const Value* v) {
      const Value* root = view_root(v, context_);
      return is_large_made(root) && (producers_.position(root) == k.order ||
                                     std::ranges::any_of(accesses, [root](const NestAccess& a) {
                                       return a.value == root;
                                     }));
    };
    return std::ranges::any_of(op.operands, shared) ||
           std::ranges::none_of(accesses, [](const NestAccess& a) {
             return a.value->type.count() > kEagerElements;
           });
  }

  // Made of positions and keys, so that any place will do. What is made of keys alone goes where it
  // is used.
  bool begins_generator(const Op& op) const {
    return is_word_step(op) && op.type().count() > kEagerElements &&
           std::ranges::any_of(
               op.operands,
               [&](const Value* v) {
                 const Value* root = view_root(v, context_);
                 return root->type.count() > kEagerElements &&
                        (root->def == nullptr || root->def->kind != Kind::kConstant);
               }) &&
           std::all_of(op.operands.begin(), op.operands.end(), [&](const Value* v) {
             const Value* root = view_root(v, context_);
             return root->type.count() <= kEagerElements ||
                    (root->def != nullptr && is_cheap(root->def->kind) && !is_copied(root));
           });
  }

  // False if the op would bring one more access than the kernel may have.
  bool has_room(const Kernel& k, const Op& op) const {
    const auto reads = [&](const Value* root) {
      return std::any_of(k.loop().nest.accesses.begin(), k.loop().nest.accesses.end(),
                         [&](const NestAccess& a) { return a.value == root; });
    };
    return has_few_accesses(k.loop().nest, /*more=*/1) ||
           std::all_of(op.operands.begin(), op.operands.end(), [&](const Value* v) {
             const Value* root = view_root(v, context_);
             const bool made = root->def != nullptr && !is_copied(root);
             return (made && is_cheap(root->def->kind)) || producers_.position(root) == k.order ||
                    reads(root);
           });
  }

  // The place of a small kernel: directly behind its latest producer.
  int behind(const Op* op, int pos) const {
    int at = pos;
    for (const Value* v : op->operands) {
      at = std::max(at, producers_.latest(v));
    }
    return at + 1;
  }

  bool joins(Kernel& k, const std::vector<const Op*>& ops, const Dims& domain) {
    try {
      auto nest = build_nest(ops, has_reduce(ops) ? domain : k.loop().domain, context_);
      if (!nest || !has_few_accesses(*nest)) {
        return false;
      }
      if (has_reduce(ops) && domain != k.loop().domain) {
        return false;
      }
      std::set<const Value*> sums;  // one update each, so that it may be sharded
      for (const NestAccess& a : nest->accesses) {
        if (producers_.position(a.value) >= k.order) {
          return false;
        }
        if (a.value->def != nullptr && a.value->def->kind == Kind::kAllReduce &&
            streamed_bytes(a.value->type, options_.piece) > 0) {
          sums.insert(a.value);
        }
      }
      if (sums.size() > 1) {
        return false;
      }
      k.ops = ops;
      k.as<LoopPart>().nest = std::move(*nest);
      return true;
    } catch (const NeedsCopy&) {
      return false;
    }
  }

  static bool has_reduce(const std::vector<const Op*>& ops) {
    return std::any_of(ops.begin(), ops.end(),
                       [](const Op* op) { return op->kind == Kind::kReduce; });
  }

  // Builds a nest of its own for an op; operands that cannot be read by strides are copied first.
  Nest nest_or_copy(const std::vector<const Op*>& ops, const Dims& domain) {
    for (int tries = 0; tries < 16; ++tries) {
      try {
        auto nest = build_nest(ops, domain, context_);
        if (nest) {
          return std::move(*nest);
        }
        const Op* op = ops.at(0);
        const Value* read = op->kind == Kind::kReduce ? barred(op->operands[0]) : nullptr;
        if (read == nullptr || read->def == nullptr || is_copied(read) ||
            !is_cheap(read->def->kind)) {
          unsupported(*op, "the operands of this op cannot be read in one loop nest");
        }
        copy(read);
      } catch (const NeedsCopy& n) {
        copy(n.value);
      }
    }
    unsupported(*ops.at(0), "the views in front of this op cannot be read by strides");
  }

  // Gives a view, iota or constant a buffer: in the region where it is defined. Of a barrier's
  // result the operand has it.
  void copy(const Value* v) {
    v = barred(v);
    if (v->def != nullptr && !producers_.is_local(v->def)) {
      parent_->copy(v);
      return;
    }
    if (copied_.contains(v) || producers_.made(v) || v->def == nullptr || !is_cheap(v->def->kind)) {
      return;
    }
    if (++copies_ > kMaxCopies) {
      unsupported(*v->def, "more than " + std::to_string(kMaxCopies) +
                               " reshapes, transposes and slices in a row need a copy each; put "
                               "arithmetic between them, or leave some of them out");
    }
    place_loop(v->def, options_.late_constants && v->def->operands.empty() ? late_.end() : -1);
    --copies_;
    copied_.insert(v);
  }

  Kernel* insert(Kernel kernel, int at) {
    auto it = program_.kernels.end();
    while (at >= 0 && it != program_.kernels.begin() && std::prev(it)->order >= at &&
           std::prev(it)->move().arguments.empty()) {  // what is given stays in front
      --it;
    }
    it = program_.kernels.insert(it, std::move(kernel));
    renumber(program_, it);
    note_loop(*it);
    producers_.forget_latest();
    return &*it;
  }

  // The kernel has its place.
  void note_loop(Kernel& k) {
    if (k.kind == KernelClass::kLoop) {
      std::vector<Joinable>& loops = loops_[Type{Elem::kF32, k.loop().domain}.count()];
      loops.insert(std::ranges::upper_bound(loops, k.order, {}, order_of),
                   {&k, loop_weight(k.ops)});
    }
  }

  void place_reduce(const Op* op) {
    const auto reducer = simple_reducer(*op->regions.at(0));
    if (op->operands.size() != 2 || !reducer) {
      unsupported(*op,
                  "a reduce must have one operand and a body of one add, multiply, maximum, "
                  "minimum, and, or or xor");
    }
    need(op->operands[1], -1);
    place_loop(op);
  }

  // A barrier has the bytes of its operands.
  static const Value* barred(const Value* v) {
    while (v->def != nullptr && v->def->kind == Kind::kOptimizationBarrier) {
      v = v->def->operands[static_cast<size_t>(v->index)];
    }
    return v;
  }

  // An op result, or a copy of a view.
  const Value* dense(const Value* v) override {
    v = barred(v);
    need(v, -1);
    try {
      const NestAccess a = resolve_view(v, context_);
      if (a.view.offset == 0 && a.view.stride == row_major_strides(v->type.dims) &&
          a.value->type.count() == v->type.count()) {
        return a.value;
      }
    } catch (const NeedsCopy&) {
      // Not a strided view of anything: copied below.
    }
    copy(v);
    return v;
  }

  NestAccess strided(const Value* v) override {
    v = barred(v);
    try {
      return resolve_view(v, context_);
    } catch (const NeedsCopy&) {
      copy(v);
      return {v, {0, row_major_strides(v->type.dims)}};
    }
  }

  void place_result(const Value* v, size_t index) {
    Kernel k(KernelClass::kCopyOut);
    k.out = v;
    k.as<MovePart>().result = index;
    k.reads = {dense(v)};
    insert(std::move(k), -1);
  }

  // To be placed behind all that reads the arguments whose memory they take.
  std::vector<Kernel> loop_results() {
    std::vector<Kernel> copies;
    for (const auto& op : region_.ops) {
      if (const std::vector<size_t>* results = facts_.result_stacks().results(*op)) {
        Kernel k(KernelClass::kCopyOut);
        k.out = op->operands[1];
        k.as<MovePart>().results = *results;
        k.reads = {dense(k.out)};
        copies.push_back(std::move(k));
      }
    }
    return copies;
  }

  void finish() {
    program_.made_ops = std::move(made_ops_);
    for (const RegionFusion* f = this; f != nullptr; f = f->parent_) {
      program_.copied.insert(f->copied_.begin(), f->copied_.end());
    }
    find_buffers(program_);
  }

  // A loop kernel, and the loop_weight() of its ops.
  struct Joinable {
    Kernel* kernel;
    size_t weight;
  };
  static int order_of(const Joinable& j) { return j.kernel->order; }

  const Module& module_;
  const Region& region_;
  const ControlFacts& facts_;
  RegionFusion* parent_;  // of the region around this one; null for main
  const CoreClasses together_;
  NestContext context_;
  Uses uses_;
  KernelProgram program_;
  // By elements: an op joins none of others. In the order of the program.
  std::unordered_map<int64_t, std::vector<Joinable>> loops_;
  std::unique_ptr<Region> made_ops_ = std::make_unique<Region>();  // becomes the program's
  Producers producers_{region_, *made_ops_, context_};
  std::set<const Value*> copied_;
  bool has_products_ = false;  // whose epilogues run on their blocks
  // With a generator behind a contraction. A sum along the columns would keep them from its blocks.
  std::set<const Kernel*> hidden_;
  int copies_ = 0;  // that copy() is making
  LateOps late_{module_, program_};
  const FormOptions options_;
  std::set<int64_t> state_counts_;  // elements of large arguments, which may have updates
};

}  // namespace

KernelProgram form_kernels(const Module& module, const FormOptions& options) {
  return RegionFusion(module, module.main->body,
                      ControlFacts(module, options.table_words, options.without_results), nullptr,
                      {}, options)
      .run();
}

}  // namespace tpu::compiler
