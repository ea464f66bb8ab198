// Runs through the kernels in order.
#include "emit/emit.hpp"

#include <utility>

#include "emit/context.hpp"
#include "emit/exchange/inflight.hpp"

namespace tpu::compiler {

namespace {

// The arrays that the kernel touches: " f32[4] i32[2]".
std::string arrays_of(const Kernel& k) {
  std::string text;
  for (const auto* values : {&k.reads, &k.writes}) {
    for (const Value* v : *values) {
      text += ' ' + to_string(v->type);
    }
  }
  return text;
}

constexpr const char* kAdvice = "; make its arrays smaller, or work on them in parts (jax.lax.map)";

Error error_at(const Kernel& k, const std::string& text) {
  const Op* op = k.ops.empty() ? nullptr : k.ops.back();
  return Error(text, op == nullptr ? "" : source_name(op->kind), op == nullptr ? nullptr : op->loc);
}

Error too_long(const Kernel& k) {
  return error_at(k, "the program grows beyond " + std::to_string(kMaxItems) +
                         " instructions at this op, which touches" + arrays_of(k) + kAdvice);
}

Error too_large(const Kernel& k, const spec::BoardParams& board) {
  return error_at(k, "the smallest tile of this op does not fit into VMEM (" +
                         std::to_string(board.core.vmem_kib) + " KiB); it touches" + arrays_of(k) +
                         kAdvice);
}

bool emit_unplanned(EmitContext& ctx, const Kernel& k) {
  switch (k.kind) {
    case KernelClass::kWhile:
      return emit_while(ctx, k);
    case KernelClass::kBranch:
      return emit_branch(ctx, k);
    default:
      throw Error("internal: a kernel has no plan");
  }
}

// The commands of a step, each kind of plan by its own function.
struct PlanEmitter {
  EmitContext& ctx;
  const Step& step;

  void operator()(const MovesOnly&) const {}
  void operator()(const Unplanned&) const {}
  void operator()(const LoopPlan& p) const { emit_loop(ctx, step, p); }
  void operator()(const DotPlan& p) const { emit_contraction(ctx, step, p); }
  void operator()(const PadPlan& p) const { emit_pad(ctx, step, p); }
  void operator()(const ConcatenatePlan&) const { emit_concatenate(ctx, step); }
  void operator()(const StreamPlan& p) const { start_inflight(ctx, step, p); }
  void operator()(const std::vector<PackedPlan>& p) const { emit_packed(ctx, step, p); }
  void operator()(const std::vector<DirectPlan>& p) const { emit_direct(ctx, step, p); }
  void operator()(const IndexedPlan& p) const { emit_indexed(ctx, step, p); }
  void operator()(const CombinePlan& p) const { emit_combine(ctx, step, p); }
  void operator()(const DynamicPlan& p) const { emit_dynamic(ctx, step, p); }
  void operator()(const FillPlan& p) const {
    for (const FillPlan::Fill& f : p.fills) {
      ctx.sink.fill(f.to, f.elem_bytes, f.count, f.pattern, step.op_id);
    }
  }
};

// False: a class that is not planned yet does not fit.
bool emit_step(EmitContext& ctx, const Step& step) {
  ctx.sink.run(step.before);
  if (std::holds_alternative<Unplanned>(step.plan)) {
    return emit_unplanned(ctx, *step.kernel);
  }
  std::visit(PlanEmitter{ctx, step}, step.plan);
  ctx.sink.run(step.after);
  return true;
}

// A kernel that does not fit beside the exchange in flight is planned behind it.
std::optional<Step> plan_beside_inflight(EmitContext& ctx, const Kernel& k) {
  auto step = plan_kernel(ctx.plan, k);
  if (!step && ctx.inflight != nullptr) {
    finish_inflight(ctx);
    step = plan_kernel(ctx.plan, k);
  }
  return step;
}

// False: ctx.too_large names the kernel that does not fit.
bool emit_all(EmitContext& ctx) {
  ctx.sink.insn(spec::ScalarOp::kRid, kPartitionRegister, 0, 0, 0);
  for (const Kernel& k : ctx.kernels.kernels) {
    try {
      if (!emit_kernel(ctx, k)) {
        return false;
      }
    } catch (const ListingFull&) {
      throw too_long(k);
    }
  }
  finish_inflight(ctx);
  ctx.sink.insn(spec::ScalarOp::kHalt, 0, 0, 0, 0);
  return true;
}

EmittedProgram finished(EmitContext& ctx) {
  Listing& listing = ctx.sink.listing;
  Scratch& scratch = ctx.memory.scratch();
  scratch.place();
  scratch.relocate(listing, ctx.slots.scratch);
  listing.slots[static_cast<size_t>(ctx.slots.scratch)].bytes =
      static_cast<uint64_t>(scratch.bytes());
  EmittedProgram out;
  out.listing = std::move(listing);
  out.scratch = std::move(scratch);
  out.ops = ctx.ops.list();
  out.constants = ctx.slots.constants;
  out.matmul_flops = ctx.ops.matmul_flops();
  out.vmem_peak = ctx.memory.vmem_peak();
  out.first_remote_semaphore = ctx.channels.first_semaphore();
  return out;
}

}  // namespace

EmitContext::EmitContext(PlanContext& p)
    : plan(p),
      module(p.module),
      kernels(p.kernels),
      board(p.board),
      slots(p.slots),
      pads(p.pads),
      memory(p.memory),
      ops(p.ops),
      channels(sink, static_cast<int>(board.core.semaphores), module.num_cores) {
  sink.listing.slots = slots.list;
}

EmitContext::~EmitContext() = default;

std::optional<int64_t> take(EmitContext& ctx, int64_t bytes) {
  const auto address = ctx.memory.take(bytes);
  ctx.run_moves();
  return address;
}

bool emit_kernel(EmitContext& ctx, const Kernel& k) {
  if (k.kind == KernelClass::kYield) {
    return true;  // the owner of the region does it
  }
  ctx.memory.enter(k.order);
  ctx.memory.set_op(ctx.ops.id(k));
  if (needs_inflight(ctx, k)) {
    finish_inflight(ctx);
  }
  for (const Kernel* part = &k; part != nullptr;) {
    const auto step = plan_beside_inflight(ctx, *part);
    if (step && emit_step(ctx, *step)) {
      part = step->rest;
      continue;
    }
    ctx.too_large = ctx.too_large == nullptr ? part : ctx.too_large;
    // Not inside regions: the places of carried values depend on all kernels of the region.
    if (ctx.regions > 0 || !cut_kernel(ctx.plan, k)) {
      return false;
    }
    ctx.too_large = nullptr;
    if (part != &k) {
      break;  // the rest comes next, as a kernel of its own
    }
    ctx.ops.forget(k);
    return emit_kernel(ctx, k);
  }
  ctx.memory.drop_dead();
  advance_inflight(ctx);
  return true;
}

EmittedProgram emit_program(const Module& module, KernelProgram& kernels,
                            const spec::BoardParams& board) {
  int64_t lock_limit = board.core.vmem_kib * 1024 / 4;
  for (;;) {
    PlanContext plan(module, kernels, board, lock_limit);
    EmitContext ctx(plan);
    if (emit_all(ctx)) {
      return finished(ctx);
    }
    const Kernel k = *ctx.too_large;
    if (ctx.memory.locks_values()) {
      lock_limit = lock_limit < 4096 ? 0 : lock_limit / 4;
    } else if (!split_kernel(kernels, k.order)) {
      throw too_large(k, board);
    }
  }
}

}  // namespace tpu::compiler
