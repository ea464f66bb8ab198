// Steps of kernels that only move data: pads, concatenation, and results that could not be written
// where they are made.
#include <algorithm>

#include "plan/plan.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kPatternBytes = 4096;  // of a computed padding value, repeated

// A value that lies nowhere: its readers take it from the operands (virtual_pad.hpp).
std::optional<Step> plan_virtual(PlanContext& ctx, const Kernel& k) {
  mark_home(ctx.memory, ctx.memory.at(k.out));
  return begin_step(ctx, k);
}

// True if the home of the buffer is the place of a result.
bool lies_at(const Buffer& b, const SlotPlace& result) {
  return result.slot == b.slot && result.offset == b.offset;
}

// Arguments that are results too, in slots that other results will take, move to scratch first.
void save_overwritten_arguments(PlanContext& ctx, uint32_t id) {
  if (ctx.arguments_saved) {
    return;
  }
  ctx.arguments_saved = true;
  for (const Kernel& k : ctx.kernels.kernels) {
    if (k.kind != KernelClass::kCopyOut || ctx.result_home[k.move().result] != nullptr) {
      continue;
    }
    Buffer& b = ctx.memory.at(k.reads[0]);
    if (b.slot < 0 || b.scratch || b.vmem >= 0) {
      continue;
    }
    for (const Kernel& w : ctx.kernels.kernels) {
      if (w.kind != KernelClass::kCopyOut || w.order == k.order ||
          !lies_at(b, ctx.slots.results[w.move().result]) ||
          ctx.result_home[w.move().result] == k.reads[0]) {
        continue;
      }
      const spec::Addr from = home_of(b);
      ctx.memory.touch(b);
      b.slot = -1;
      b.offset = 0;
      ctx.memory.give_home(b);
      ctx.memory.move({from, home_of(b), b.bytes, elem_bytes(b.value->type.elem), id});
      break;
    }
  }
}

}  // namespace

int64_t pad_pattern_elements(const Type& type) {
  return std::min(kPatternBytes / elem_bytes(type.elem), type.count());
}

std::optional<Step> plan_pad(PlanContext& ctx, const Kernel& k) {
  Buffer& out = ctx.memory.at(k.out);
  if (out.bytes == 0) {
    return begin_step(ctx, k);
  }
  if (ctx.pads.contains(k.out)) {
    return plan_virtual(ctx, k);
  }
  Reservation attempt(ctx.memory);
  ctx.memory.pins().pin({&out});
  place_result(ctx.memory, out);
  PadPlan plan;
  const Value* value = k.ops[0]->operands[1];
  if (value->def == nullptr || value->def->kind != Kind::kConstant) {
    const Type& type = k.out->type;
    const auto area = ctx.memory.take(pad_pattern_elements(type) * elem_bytes(type.elem));
    if (!area) {
      return std::nullopt;
    }
    plan.pattern = *area;
    ctx.memory.give(*area);
  }
  Step step = begin_step(ctx, k);
  step.plan = plan;
  finish_result(ctx.memory, out, step.op_id);
  end_step(ctx, step);
  ctx.memory.pins().clear();
  attempt.keep();
  return step;
}

std::optional<Step> plan_concatenate(PlanContext& ctx, const Kernel& k) {
  if (ctx.pads.contains(k.out)) {
    return plan_virtual(ctx, k);
  }
  Buffer& out = ctx.memory.at(k.out);
  ctx.memory.pins().pin({&out});
  place_result(ctx.memory, out);
  Step step = begin_step(ctx, k);
  step.plan = ConcatenatePlan{};
  finish_result(ctx.memory, out, step.op_id);
  end_step(ctx, step);
  ctx.memory.pins().clear();
  return step;
}

// The host reads and writes HBM: an operand is copied there, a result is made at its home. What
// travels beside kernels stays until its transfer is finished.
std::optional<Step> plan_host(PlanContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  const Op* op = k.ops[0];
  const HostStage stage = k.host().stage;
  const auto step_at = [&](const spec::Addr& place, int64_t bytes) {
    Step step = begin_step(ctx, k);
    step.plan = HostPlan{place, bytes};
    return step;
  };
  if (k.reads.empty()) {
    Buffer& out = ctx.memory.at(k.out);
    ctx.memory.give_home(out);
    Step step = step_at(home_of(out), out.bytes);
    mark_home(ctx.memory, out);
    return step;
  }
  const Buffer& b = ctx.memory.at(k.reads[0]);
  if (const auto copy = ctx.sent.find(op); stage == HostStage::kFinish && copy != ctx.sent.end()) {
    Step step = step_at(hbm_addr(ctx.slots.scratch, copy->second), b.bytes);
    ctx.memory.scratch().give(copy->second);
    ctx.sent.erase(copy);
    return step;
  }
  if (b.in_hbm && b.slot >= 0) {
    return step_at(home_of(b), b.bytes);
  }
  const int64_t copy = ctx.memory.scratch().take(b.bytes, b.value, id);
  const spec::Addr place = hbm_addr(ctx.slots.scratch, copy);
  if (b.bytes > 0) {
    ctx.memory.move({place_of(b), place, b.bytes, elem_bytes(b.value->type.elem), id});
  }
  Step step = step_at(place, b.bytes);
  if (stage == HostStage::kStart) {
    ctx.sent[op] = copy;
  } else {
    ctx.memory.scratch().give(copy);
  }
  return step;
}

std::optional<Step> plan_copy_out(PlanContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  if (!k.move().results.empty()) {
    copy_loop_result(ctx, k);
    return begin_step(ctx, k);
  }
  save_overwritten_arguments(ctx, id);
  const Buffer& b = ctx.memory.at(k.reads[0]);
  const SlotPlace& place = ctx.slots.results[k.move().result];
  const bool same_place = b.slot >= 0 && !b.scratch && b.in_hbm && lies_at(b, place);
  if (b.bytes > 0 && ctx.result_home[k.move().result] != k.reads[0] && !same_place) {
    ctx.memory.move({place_of(b), hbm_addr(place.slot, place.offset), b.bytes,
                     elem_bytes(b.value->type.elem), id});
  }
  return begin_step(ctx, k);
}

}  // namespace tpu::compiler
