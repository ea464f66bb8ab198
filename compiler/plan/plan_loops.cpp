// Steps of loops and contractions: what they write in tiles gets its home, and is stored if it must
// be.
#include <algorithm>

#include "plan/plan.hpp"

namespace tpu::compiler {

namespace {

uint64_t fill_pattern(const Kernel& k, const Value* v) {
  for (const Node& n : k.loop().nest.nodes) {
    if (n.op->result() == v && n.op->kind == Kind::kReduce &&
        n.in[1].kind == Operand::Kind::kImmediate) {
      return v->type.elem == Elem::kBf16 ? n.in[1].immediate >> 16 : n.in[1].immediate;
    }
  }
  throw Error("an empty reduction needs a constant init value", source_name(v->def->kind),
              v->def->loc);
}

// Reductions over nothing.
std::optional<Step> plan_empty(PlanContext& ctx, const Kernel& k, uint32_t id) {
  Reservation attempt(ctx.memory);
  FillPlan plan;
  for (const Value* v : k.writes) {
    if (v->type.count() == 0) {
      continue;
    }
    const uint64_t pattern = fill_pattern(k, v);
    Buffer& b = ctx.memory.at(v);
    if (!ctx.memory.place(b)) {
      return std::nullopt;
    }
    plan.fills.push_back({vmem_addr(b.vmem), elem_bytes(v->type.elem), v->type.count(), pattern});
  }
  Step step = begin_step(ctx, k);
  step.plan = std::move(plan);
  for (const Value* v : k.writes) {
    Buffer& b = ctx.memory.at(v);
    if (b.vmem >= 0 && b.must_store) {
      ctx.memory.store(b, id);
    }
  }
  end_step(ctx, step);
  attempt.keep();
  return step;
}

// Homes of what goes to HBM tile by tile. Sums come last if the first tile does not finish them.
void give_homes(Residency& memory, const LoopPlan& plan, bool sums) {
  for (const Stream& s : plan.streams) {
    if (s.output && !s.local && (s.value->def->kind == Kind::kReduce) == sums) {
      memory.give_home(memory.at(s.value));
    }
  }
}

void give_all_homes(Residency& memory, const LoopPlan& plan) {
  for (const Stream& s : plan.streams) {
    if (s.output && !s.local) {
      memory.give_home(memory.at(s.value));
    }
  }
}

// Behind the last tile: what is written is in HBM, or stored there if it must be. Of an epilogue,
// `all` has what leaves the kernel around it.
void finish_loop(Residency& memory, const Kernel& k, const std::vector<const Value*>& all,
                 uint32_t id) {
  for (const Value* v : k.writes) {
    if (std::find(all.begin(), all.end(), v) == all.end()) {
      continue;
    }
    Buffer& b = memory.at(v);
    if (b.vmem >= 0 && b.must_store) {
      memory.store(b, id);
    } else if (b.vmem < 0) {
      mark_home(memory, b);
    }
  }
}

// Homes of the blocks' outputs, in the order in which the blocks write them.
void give_block_homes(Residency& memory, const Kernel& k, const DotPlan& p) {
  if (p.epilogues.empty()) {
    if (!p.limits.out_whole) {
      memory.give_home(memory.at(k.out));
    }
    return;
  }
  std::vector<const LoopPlan*> carried;  // sums that the first block does not finish
  for (size_t i = 0; i < p.epilogues.size(); ++i) {
    const EpiloguePlan& e = p.epilogues[i];
    const Nest& nest = k.contract().after[i]->loop().nest;
    bool at_once = true;
    for (size_t l = 0; l < nest.loops.size(); ++l) {
      at_once = at_once && (!nest.loops[l].reduced || e.boxes[0].count[l] == nest.loops[l].n);
    }
    if (at_once) {
      give_all_homes(memory, e.loop);
    } else {
      give_homes(memory, e.loop, false);
      carried.push_back(&e.loop);
    }
  }
  if (p.stores_sums) {
    memory.give_home(memory.at(k.out));
  }
  for (const ProductPlan& product : p.products) {
    give_block_homes(memory, *product.kernel, product.dot);
  }
  for (const LoopPlan* loop : carried) {
    give_homes(memory, *loop, true);
  }
}

Step dot_step(PlanContext& ctx, const Kernel& k, DotPlan plan, uint32_t id) {
  Residency& memory = ctx.memory;
  give_block_homes(memory, k, plan);
  Step step = begin_step(ctx, k);
  ctx.ops.count_flops(k);
  const bool fused = !plan.epilogues.empty();
  if (fused) {
    for (const auto& loop : k.contract().after) {
      finish_loop(memory, *loop, k.writes, id);
    }
  }
  Buffer& out = memory.at(k.out);
  if (fused ? plan.stores_sums : !plan.limits.out_whole) {
    mark_home(memory, out);
  } else if (!fused && out.must_store) {
    memory.store(out, id);
  }
  for (const ProductPlan& product : plan.products) {
    Buffer& result = memory.at(product.kernel->out);
    if (!product.dot.limits.out_whole) {
      mark_home(memory, result);
    } else if (result.must_store) {
      memory.store(result, product.op_id);
    }
  }
  end_step(ctx, step);
  for (const ProductPlan& product : plan.products) {
    note_places(ctx, *product.kernel, step.places);
  }
  release_dot(memory, plan);
  step.plan = std::move(plan);
  return step;
}

// The kernels from `k` on, of the program or of the region that has it; none if no list has it.
using Followers = std::pair<std::list<Kernel>::const_iterator, std::list<Kernel>::const_iterator>;
std::optional<Followers> find_followers(const KernelProgram& program, const Kernel& k) {
  for (auto it = program.kernels.begin(); it != program.kernels.end(); ++it) {
    if (&*it == &k) {
      return Followers(it, program.kernels.end());
    }
    if (k.order > it->order && k.order < it->end) {
      for (const auto& region : it->control().regions) {
        if (const auto found = region ? find_followers(*region, k) : std::nullopt) {
          return found;
        }
      }
    }
  }
  return std::nullopt;
}

// Sums that nobody else reads take memory only if the epilogue cannot work on blocks, and so does
// what passes from one epilogue to another. To add them again changes nothing.
void add_inner_values(Residency& memory, const Kernel& k) {
  const auto add_read = [&](const Value* v) {
    Buffer& b = memory.add(v);
    if (b.reads.empty() || b.reads.front() != k.order) {
      b.reads.insert(b.reads.begin(), k.order);
    }
  };
  if (k.contract().after.empty()) {
    return;
  }
  add_read(k.out);
  for (const auto& loop : k.contract().after) {
    loop->order = k.order;
    for (const Value* v : loop->writes) {
      if (memory.find(v) == nullptr) {
        add_read(v);
      }
    }
  }
}

// Contractions right behind `k` that can take what its epilogues make while it is in VMEM. None
// beside an exchange, which they might have to follow.
void add_products(PlanContext& ctx, const Kernel& k, const Followers& followers, DotPlan& plan) {
  constexpr size_t kMost = 2;
  if (!ctx.memory.pins().held.empty() || plan.order != nullptr) {
    return;
  }
  for (auto it = std::next(followers.first); it != followers.second; ++it) {
    if (it->kind != KernelClass::kContract || it->contract().after.size() > 1 ||
        it->contract().arriving || it->contract().leaving || plan.products.size() == kMost) {
      return;
    }
    if (ctx.memory.find(it->out) == nullptr) {
      add_inner_values(ctx.memory, *it);
    }
    auto product = plan_product(k, plan, *it, ctx.memory, ctx.moving, ctx.board, ctx.ops.id(*it));
    if (!product) {
      return;
    }
    plan.products.push_back(std::move(*product));
    ctx.joined.insert(&*it);
  }
}

std::optional<Step> plan_sums(PlanContext& ctx, const Kernel& k, uint32_t id) {
  Buffer& out = ctx.memory.at(k.out);
  if (out.bytes == 0) {
    return begin_step(ctx, k);
  }
  if (Contraction::count(k.contract().dot.k) == 0) {  // an empty sum
    ctx.memory.give_home(out);
    Step step = begin_step(ctx, k);
    step.plan =
        FillPlan{{{home_of(out), elem_bytes(out.value->type.elem), out.value->type.count(), 0}}};
    mark_home(ctx.memory, out);
    end_step(ctx, step);
    return step;
  }
  auto plan = plan_dot(k, ctx.memory, ctx.board, id);
  if (!plan) {
    return std::nullopt;
  }
  return dot_step(ctx, k, std::move(*plan), id);
}

}  // namespace

std::optional<Step> plan_loop_kernel(PlanContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  if (k.loop().nest.elements() == 0) {
    return plan_empty(ctx, k, id);
  }
  if (stored_nodes(k).empty()) {
    return begin_step(ctx, k);
  }
  auto plan = plan_loop(k, ctx.memory, ctx.board, id);
  if (!plan) {
    return std::nullopt;
  }
  if (plan->cut_reduce) {
    give_homes(ctx.memory, *plan, false);
    give_homes(ctx.memory, *plan, true);
  } else {
    give_all_homes(ctx.memory, *plan);
  }
  Step step = begin_step(ctx, k);
  finish_loop(ctx.memory, k, k.writes, id);
  end_step(ctx, step);
  release_loop(ctx.memory, *plan);
  step.plan = std::move(*plan);
  return step;
}

std::optional<Step> plan_contraction(PlanContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  if (const Value* v = k.contract().exchanged) {
    // Parts of it arrive while this kernel makes others: in memory that is not an operand's.
    if (Buffer& b = ctx.memory.at(v); b.target < 0 && b.vmem < 0) {
      ctx.memory.give_home(b);
    }
  }
  const auto& after = k.contract().after;
  if (ctx.joined.erase(&k) > 0) {  // a step before this one has done it
    Step step = begin_step(ctx, k);
    ctx.ops.count_flops(k);
    step.rest = after.empty() ? nullptr : after.front().get();
    return step;
  }
  if (after.empty()) {
    return plan_sums(ctx, k, id);
  }
  const auto followers = find_followers(ctx.kernels, k);
  if (followers) {  // of a plan of `k` that was given up
    std::for_each(followers->first, followers->second,
                  [&](const Kernel& each) { ctx.joined.erase(&each); });
  }
  add_inner_values(ctx.memory, k);
  if (auto fused = plan_fused(k, ctx.memory, ctx.board, id)) {
    if (followers) {
      add_products(ctx, k, *followers, *fused);
    }
    return dot_step(ctx, k, std::move(*fused), id);
  }
  if (after.size() > 1) {
    return std::nullopt;  // the last one leaves when the kernel is cut
  }
  auto step = plan_sums(ctx, k, id);
  if (step) {
    step->rest = after.front().get();
  }
  return step;
}

}  // namespace tpu::compiler
