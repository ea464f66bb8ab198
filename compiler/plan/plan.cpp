#include "plan/plan.hpp"

#include <utility>

#include "plan/in_place.hpp"
#include "plan/least_memory.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t whole_limit(const spec::BoardParams& board) {
  return board.core.vmem_kib * 1024 / 4;
}

void note_place(const PlanContext& ctx, Residency& memory, const Value* v, Places& places) {
  if (const Buffer* b = memory.find(v)) {
    places[v] = *b;
  }
  if (const auto pad = ctx.pads.find(v); pad != ctx.pads.end()) {
    for (const VirtualPad::Part& part : pad->second.parts) {
      note_place(ctx, memory, part.base, places);
    }
  }
}

}  // namespace

PlanContext::PlanContext(const Module& m, KernelProgram& k, const spec::BoardParams& b,
                         int64_t hbm_bytes)
    : module(m),
      kernels(k),
      board(b),
      slots(make_slots(m, k, hbm_bytes)),
      pads(find_virtual_pads(m, k, whole_limit(b))),
      memory(k, slots, pads, b, whole_limit(b)),
      result_home(place_results(k, slots, memory)) {
  check_least_memory(k, slots, pads, b, hbm_bytes);
}

Step begin_step(PlanContext& ctx, const Kernel& k) {
  Step step;
  step.kernel = &k;
  step.op_id = ctx.ops.id(k);
  step.before = ctx.memory.take_moves();
  return step;
}

void end_step(PlanContext& ctx, Step& step) {
  step.after = ctx.memory.take_moves();
  note_places(ctx, *step.kernel, step.places);
}

void note_places(PlanContext& ctx, const Kernel& k, Places& places) {
  for (const auto* values : {&k.reads, &k.writes}) {
    for (const Value* v : *values) {
      note_place(ctx, ctx.memory, v, places);
    }
  }
  if (k.out != nullptr) {
    note_place(ctx, ctx.memory, k.out, places);
  }
  for (const auto& loop : k.contract().after) {
    for (const Value* v : loop->writes) {
      note_place(ctx, ctx.memory, v, places);
    }
  }
}

namespace {

std::optional<Step> plan_by_class(PlanContext& ctx, const Kernel& k) {
  switch (k.kind) {
    case KernelClass::kLoop:
      return plan_loop_kernel(ctx, k);
    case KernelClass::kContract:
      return plan_contraction(ctx, k);
    case KernelClass::kPad:
      return plan_pad(ctx, k);
    case KernelClass::kConcatenate:
      return plan_concatenate(ctx, k);
    case KernelClass::kCopyOut:
      return plan_copy_out(ctx, k);
    case KernelClass::kHost:
      return plan_host(ctx, k);
    case KernelClass::kAllReduce:
      return plan_all_reduce(ctx, k);
    case KernelClass::kExchange:
      return plan_exchange(ctx, k);
    case KernelClass::kIndexed:
      return plan_indexed_kernel(ctx, k);
    case KernelClass::kDynamicSlice:
    case KernelClass::kDynamicUpdate:
      return plan_dynamic(ctx, k);
    case KernelClass::kWhile:
    case KernelClass::kBranch:
      return plan_control(ctx, k);
    case KernelClass::kYield:
      break;  // the owner of the region does it
  }
  return begin_step(ctx, k);
}

}  // namespace

void enter_kernel(PlanContext& ctx, const Kernel& k) { ctx.memory.enter(k.order, ctx.ops.id(k)); }

std::optional<Step> plan_kernel(PlanContext& ctx, const Kernel& k) {
  ctx.too_large = nullptr;
  auto step = plan_by_class(ctx, k);
  if (!step && ctx.too_large == nullptr) {
    ctx.too_large = &k;
  }
  return step;
}

bool has_chain(const Kernel& k) {
  return k.kind == KernelClass::kContract && k.contract().after.size() > 1;
}

bool cut_kernel(PlanContext& ctx, const Kernel& k) {
  if (!split_kernel(ctx.kernels, k.order)) {
    return false;
  }
  ctx.memory.find_reads(ctx.kernels, ctx.pads);
  revise_results(ctx.kernels, ctx.slots, k.order, ctx.memory, ctx.result_home);
  return true;
}

}  // namespace tpu::compiler
