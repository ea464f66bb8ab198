// Steps of while, if and case: all kernels of their regions are planned before the first command.
// The places of carried values and of what stays locked hold for the whole region, so one kernel
// that does not fit there is a reason to plan the outermost owner again.
#include <algorithm>

#include "plan/plan.hpp"
#include "plan/regions.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kSmemCounters = 512;  // 4 bytes for each counted loop around

bool plan_steps(PlanContext& ctx, const Kernel& k, std::vector<Step>& steps) {
  enter_kernel(ctx, k);
  for (const Kernel* part = &k; part != nullptr;) {
    auto step = plan_kernel(ctx, *part);
    if (!step) {
      return false;
    }
    part = step->rest;
    steps.push_back(std::move(*step));
  }
  ctx.memory.drop_dead();
  return true;
}

bool plan_region(PlanContext& ctx, const KernelProgram& region, Schedule& out) {
  ++ctx.regions;
  const bool fits = std::all_of(region.kernels.begin(), region.kernels.end(), [&](const Kernel& k) {
    return k.kind == KernelClass::kYield || plan_steps(ctx, k, out.steps);
  });
  --ctx.regions;
  return fits;
}

// Its results go to the homes of the results of `owner`.
void end_region(PlanContext& ctx, const KernelProgram& region, const Op& owner, uint32_t id,
                RegionPlan& out) {
  out.copied = yield(ctx.memory, ctx.slots, region.kernels.back(), owner, id);
  clean_region(ctx.memory, region);
  out.yield = ctx.memory.take_moves();
}

// Results of the region that it gives only once may be made in the homes of the owner's results.
void aim_results(PlanContext& ctx, const KernelProgram& region, const Op& owner,
                 const Region* replaced) {
  const std::vector<const Value*>& given = region.kernels.back().control().carried;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] != nullptr && std::count(given.begin(), given.end(), given[i]) == 1) {
      aim_at_home(ctx.memory, region, given[i],
                  replaced == nullptr ? nullptr : replaced->args[i].get(),
                  ctx.memory.at(owner.result(i)));
    }
  }
}

// One iteration of the body, homes to homes.
bool plan_body(PlanContext& ctx, const Kernel& k, RegionPlan& out, uint32_t id) {
  const Op& op = *k.ops[0];
  const KernelProgram& body = *k.control().regions[1];
  const Region& region = *op.regions[1];
  enter_body(ctx.memory, k, region);
  aim_results(ctx, body, op, &region);
  if (k.control().counted) {
    write_in_place(ctx, body);
  }
  if (!plan_region(ctx, body, out.schedule)) {
    return false;
  }
  end_region(ctx, body, op, id, out);
  leave_body(ctx.memory, k, region);
  return true;
}

// The counter as a value in VMEM, for kernels that compute with it.
bool place_counter(PlanContext& ctx, Buffer& counter, WhilePlan& plan) {
  if (counter.reads.empty()) {
    return true;
  }
  const auto address = ctx.memory.take(counter.bytes);
  if (!address) {
    return false;
  }
  ctx.memory.touch(counter);
  counter.vmem = plan.counter_vmem = *address;
  counter.locked = true;
  plan.counter_moves = ctx.memory.take_moves();
  return true;
}

bool plan_counted(PlanContext& ctx, const Kernel& k, WhilePlan& plan, uint32_t id) {
  const CountedLoop& loop = *k.control().counted;
  plan.counter_smem = kSmemCounters + 4 * static_cast<int64_t>(ctx.counters);
  if (plan.counter_smem + 4 > ctx.board.core.smem_kib * 1024) {
    throw Error("counted loops are nested too deeply", "stablehlo.while", k.ops[0]->loc);
  }
  Buffer& counter = ctx.memory.at(k.ops[0]->regions[1]->args[loop.index].get());
  ++ctx.counters;
  ctx.ops.enter_loop(loop.trips);
  ctx.loops.push_back({&k, plan.counter_smem});
  const bool fits = place_counter(ctx, counter, plan) && plan_body(ctx, k, plan.body, id);
  ctx.loops.pop_back();
  ctx.ops.leave_loop(loop.trips);
  --ctx.counters;
  if (fits && counter.vmem >= 0) {
    ctx.memory.touch(counter);
    counter.locked = false;
    ctx.memory.drop(counter);
  }
  return fits;
}

bool plan_conditional(PlanContext& ctx, const Kernel& k, WhilePlan& plan, uint32_t id) {
  const Region& condition = *k.ops[0]->regions[0];
  const KernelProgram& kernels = *k.control().regions[0];
  enter_body(ctx.memory, k, condition);
  if (!plan_region(ctx, kernels, plan.condition)) {
    return false;
  }
  const Kernel& end = kernels.kernels.back();
  ctx.memory.enter(end.order, id);
  plan.test = scalar_places(ctx.memory, {{end.control().carried.at(0), {}}});
  clean_region(ctx.memory, kernels);
  leave_body(ctx.memory, k, condition);
  return plan_body(ctx, k, plan.body, id);
}

// Behind the regions of a kernel: what they kept in place is free, the results go home.
void leave_regions(PlanContext& ctx, const Kernel& k, const std::vector<Buffer*>& locked,
                   Step& step) {
  for (Buffer* b : locked) {
    unlock(ctx.memory, *b);
  }
  ctx.memory.enter(k.end, step.op_id);
  for (const Value* v : k.writes) {
    end_region_home(ctx.memory, ctx.memory.at(v), step.op_id);
  }
  end_step(ctx, step);
}

std::optional<Step> plan_while(PlanContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  const std::optional<CountedLoop>& counted = k.control().counted;
  WhilePlan plan;
  plan.runs = !counted || counted->trips > 0;
  place_carried(ctx.memory, ctx.slots, k, id);
  std::vector<Buffer*> locked;
  if (plan.runs) {
    locked = settle(ctx.memory, k, true, id);
  }
  Step step = begin_step(ctx, k);
  if (plan.runs &&
      !(counted ? plan_counted(ctx, k, plan, id) : plan_conditional(ctx, k, plan, id))) {
    return std::nullopt;
  }
  leave_regions(ctx, k, locked, step);
  step.plan = std::move(plan);
  return step;
}

std::optional<Step> plan_branch(PlanContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  const Op& op = *k.ops[0];
  BranchPlan plan;
  for (const Value* v : k.writes) {
    give_region_home(ctx.memory, ctx.memory.at(v));
  }
  Step step = begin_step(ctx, k);
  plan.predicate = scalar_places(ctx.memory, {k.control().predicate});
  const std::vector<Buffer*> locked = settle(ctx.memory, k, false, id);
  plan.settled = ctx.memory.take_moves();
  const size_t arms = op.regions.size();
  plan.arms.resize(arms);
  for (size_t n = 0; n < arms; ++n) {  // the last one stands first
    const size_t r = n == 0 ? arms - 1 : n - 1;
    const KernelProgram& arm = *k.control().regions[r];
    aim_results(ctx, arm, op, nullptr);
    if (!plan_region(ctx, arm, plan.arms[r].schedule)) {
      return std::nullopt;
    }
    end_region(ctx, arm, op, id, plan.arms[r]);
  }
  leave_regions(ctx, k, locked, step);
  step.plan = std::move(plan);
  return step;
}

std::optional<Step> plan_regions(PlanContext& ctx, const Kernel& k) {
  return k.kind == KernelClass::kWhile ? plan_while(ctx, k) : plan_branch(ctx, k);
}

}  // namespace

std::optional<Step> plan_control(PlanContext& ctx, const Kernel& k) {
  if (ctx.regions > 0) {
    return plan_regions(ctx, k);
  }
  const int64_t most = ctx.memory.locks().limit;
  std::optional<Step> step;
  for (int64_t limit = most; !step;) {
    const OpTable::Mark ops = ctx.ops.mark();
    const auto sent = ctx.sent;  // none stays from an attempt that is undone
    ctx.memory.locks().limit = limit;
    bool locks = false;
    {
      Reservation attempt(ctx.memory);
      step = plan_regions(ctx, k);
      if (step) {
        attempt.keep();
        break;
      }
      locks = ctx.memory.locks().any();
    }
    ctx.ops.undo(ops);
    ctx.sent = sent;
    if (locks) {
      limit = limit < 4096 ? 0 : limit / 4;
    } else {
      const bool chain = has_chain(*ctx.too_large);
      if (!split_kernel(ctx.kernels, ctx.too_large->order)) {
        break;
      }
      ctx.memory.find_reads(ctx.kernels, ctx.pads);
      if (chain) {  // which may not have fitted whatever was locked
        limit = most;
      }
    }
    enter_kernel(ctx, k);
  }
  ctx.memory.locks().limit = most;
  return step;
}

}  // namespace tpu::compiler
