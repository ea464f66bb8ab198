// Runs through the kernels in order. Planning and emission take turns: how far the exchange in
// flight has come, and so the VMEM that it holds, depends on the commands beside it.
#include "emit/emit.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "emit/context.hpp"
#include "emit/exchange/inflight.hpp"
#include "ir/error_kinds.hpp"

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

// Items of the listing by op table entry; those that name none belong to the command in front.
std::vector<size_t> items_by_op(const Listing& listing, size_t ops) {
  std::vector<size_t> items(ops);
  uint32_t id = 0;
  for (const Item& item : listing.items) {
    if (const auto* command = std::get_if<Command>(&item)) {
      id = command->head().op_id;
    }
    if (id < ops) {
      items[id] += 1;
    }
  }
  return items;
}

struct Written {
  const Kernel* kernel = nullptr;
  const Op* dot = nullptr;  // of the kernel
  size_t items = 0;
};

const Op* dot_of(const Kernel& kernel) {
  const auto dot = std::ranges::find(kernel.ops, Kind::kDotGeneral, &Op::kind);
  return dot == kernel.ops.end() ? nullptr : *dot;
}

// The kernel that is written out most: of all, or of those with a product.
Written most_written(const EmitContext& ctx, bool products) {
  const PlanContext& plan = ctx.plan;
  const std::vector<size_t> items = items_by_op(ctx.sink.listing, plan.ops.list().size());
  std::map<int, size_t> by_order;
  for (uint32_t id = 0; id < items.size(); ++id) {
    if (const std::optional<int> order = plan.ops.order(id)) {
      by_order[*order] = std::max(by_order[*order], items[id]);
    }
  }
  Written most;
  for_each_kernel(plan.kernels, [&](const Kernel& k) {
    const auto found = by_order.find(k.order);
    if (found != by_order.end() && found->second > most.items &&
        (!products || dot_of(k) != nullptr)) {
      most = {&k, dot_of(k), found->second};
    }
  });
  return most;
}

// Names the kernel that is written out most, wherever the listing was full. If it is a small part
// of the program, the product that is written out most can become a loop with its equals.
ProgramTooLong too_long(const EmitContext& ctx) {
  const Written most = most_written(ctx, false);
  const std::string limit =
      "the program grows beyond " + std::to_string(kMaxItems) + " instructions";
  if (most.kernel == nullptr) {
    return {Error(limit), nullptr, 1};
  }
  const Kernel& kernel = *most.kernel;
  const Op* op = most.dot != nullptr ? most.dot : kernel.ops.empty() ? nullptr : kernel.ops.back();
  const double share = static_cast<double>(most.items) / kMaxItems;
  constexpr double kFew = 1.0 / 16;
  const Error error =
      error_at(kernel, limit + "; " + std::to_string(most.items) +
                           " of them are of this op, which touches" + arrays_of(kernel) +
                           (share < kFew ? ", and no other op has more; go over equal layers with "
                                           "jax.lax.scan, or compute less at a time"
                                         : kAdvice));
  const Written product = share < kFew ? most_written(ctx, true) : Written{};
  return product.dot == nullptr
             ? ProgramTooLong(error, op, share)
             : ProgramTooLong(error, product.dot, static_cast<double>(product.items) / kMaxItems);
}

Error too_large(const Kernel& k, const spec::BoardParams& board) {
  int64_t bytes = 0;
  for (const auto* values : {&k.reads, &k.writes}) {
    for (const Value* v : *values) {
      bytes += v->type.bytes();
    }
  }
  // Arrays smaller than VMEM are not what is too large.
  const bool small = bytes <= int64_t{1024} * board.core.vmem_kib;
  return error_at(k,
                  "the smallest tile of this op does not fit into VMEM (" +
                      std::to_string(board.core.vmem_kib) + " KiB); it touches" + arrays_of(k) +
                      (small ? "; compile for a board with more VMEM (core.vmem_kib)" : kAdvice));
}

// The commands of a step, each kind of plan by its own function.
struct PlanEmitter {
  EmitContext& ctx;
  const Step& step;

  void operator()(const MovesOnly&) const {}
  void operator()(const LoopPlan& p) const { emit_loop(ctx, step, p); }
  void operator()(const DotPlan& p) const { emit_contraction(ctx, step, p); }
  void operator()(const PadPlan& p) const { emit_pad(ctx, step, p); }
  void operator()(const ConcatenatePlan&) const { emit_concatenate(ctx, step); }
  void operator()(const IndexedPlan& p) const { emit_indexed(ctx, step, p); }
  void operator()(const CombinePlan& p) const { emit_combine(ctx, step, p); }
  void operator()(const DynamicPlan& p) const { emit_dynamic(ctx, step, p); }
  void operator()(const std::vector<PackedPlan>& p) const { emit_packed(ctx, step, p); }
  void operator()(const StreamPlan& p) const { start_inflight(ctx, step, p); }
  void operator()(const std::vector<DirectPlan>& p) const { emit_direct(ctx, step, p); }
  void operator()(const HostPlan& p) const { emit_host(ctx, step, p); }
  void operator()(const WhilePlan& p) const { emit_while(ctx, step, p); }
  void operator()(const BranchPlan& p) const { emit_branch(ctx, step, p); }
  void operator()(const FillPlan& p) const {
    for (const FillPlan::Fill& f : p.fills) {
      ctx.sink.fill(f.to, f.elem_bytes, f.count, f.pattern, step.op_id);
    }
  }
};

// A kernel that does not fit beside the exchange in flight is planned behind it.
std::optional<Step> plan_beside_inflight(EmitContext& ctx, const Kernel& k) {
  auto step = plan_kernel(ctx.plan, k);
  if (!step && ctx.inflight != nullptr) {
    finish_inflight(ctx);
    step = plan_kernel(ctx.plan, k);
  }
  return step;
}

// What cannot be planned is cut in two: its first half is planned next, and the second one follows.
void emit_kernel(EmitContext& ctx, const Kernel& k) {
  PlanContext& plan = ctx.plan;
  const OpTable::Mark ops = plan.ops.mark();
  enter_kernel(plan, k);
  const bool drains = k.kind == KernelClass::kHost && k.host().stage == HostStage::kWhole;
  if (drains || needs_inflight(ctx, k)) {
    finish_inflight(ctx);
  }
  for (const Kernel* part = &k; part != nullptr;) {
    const auto step = plan_beside_inflight(ctx, *part);
    if (step) {
      emit_step(ctx, *step);
      part = step->rest;
      continue;
    }
    if (!cut_kernel(plan, k)) {
      throw too_large(*plan.too_large, ctx.board);
    }
    if (part != &k) {
      break;  // the rest comes next, as a kernel of its own
    }
    plan.ops.undo(ops);
    return emit_kernel(ctx, k);
  }
  plan.memory.drop_dead();
  advance_inflight(ctx);
}

// What the rules want between a kernel and the next one.
void end_kernel(EmitContext& ctx, const EmitRules& rules) {
  if (!rules.overlap) {
    finish_inflight(ctx);
  }
  if (!rules.keep_values) {
    ctx.plan.memory.flush();
    ctx.sink.run(ctx.plan.memory.take_moves());
  }
  if (!rules.overlap) {
    ctx.sink.control(Control::Kind::kDrain);
  }
}

void emit_all(EmitContext& ctx, const std::function<void(double done)>& progress,
              const EmitRules& rules) {
  size_t behind = 0;
  ctx.sink.insn(spec::ScalarOp::kRid, kPartitionRegister, 0, 0, 0);
  for (const Kernel& k : ctx.plan.kernels.kernels) {
    emit_kernel(ctx, k);
    end_kernel(ctx, rules);
    if (progress) {  // kernels that are cut become more
      const size_t all = std::max(++behind, ctx.plan.kernels.kernels.size());
      progress(static_cast<double>(behind) / static_cast<double>(all));
    }
  }
  finish_inflight(ctx);
  ctx.sink.insn(spec::ScalarOp::kHalt, 0, 0, 0, 0);
}

EmittedProgram finished(EmitContext& ctx) {
  Listing& listing = ctx.sink.listing;
  PlanContext& plan = ctx.plan;
  Scratch& scratch = plan.memory.scratch();
  scratch.place();
  scratch.relocate(listing, plan.slots.scratch);
  listing.slots[static_cast<size_t>(plan.slots.scratch)].bytes =
      static_cast<uint64_t>(scratch.bytes());
  EmittedProgram out;
  out.listing = std::move(listing);
  out.scratch = std::move(scratch);
  out.ops = plan.ops.list();
  out.constants = plan.slots.constants;
  for (const ResultPlace& place : plan.slots.results) {
    out.result_slots.push_back(place.slot);
  }
  out.matmul_flops = plan.ops.matmul_flops();
  out.vmem_peak = plan.memory.vmem_peak();
  out.first_remote_semaphore = ctx.channels.first_semaphore();
  out.leaving_early = std::move(ctx.leaving_early);
  out.loop_copies = std::move(ctx.loop_copies);
  return out;
}

}  // namespace

EmitContext::EmitContext(PlanContext& p, const std::vector<int>& cores)
    : plan(p),
      module(p.module),
      board(p.board),
      pads(p.pads),
      sink(p.moving),
      channels(sink, static_cast<int>(board.core.semaphores), cores) {
  sink.listing.slots = plan.slots.list;
}

EmitContext::~EmitContext() = default;

void emit_step(EmitContext& ctx, const Step& step) {
  ctx.sink.run(step.before);
  std::visit(PlanEmitter{ctx, step}, step.plan);
  ctx.sink.run(step.after);
}

EmittedProgram emit_program(const Module& module, KernelProgram& kernels,
                            const spec::BoardParams& board, const std::vector<int>& cores,
                            const std::function<void(double done)>& progress,
                            const EmitRules& rules) {
  PlanContext plan(module, kernels, board, usable_hbm(board, rules.hbm_bytes));
  EmitContext ctx(plan, cores);
  if (!rules.keep_values) {
    plan.memory.keep_nothing();
  }
  try {
    ctx.overlap = rules.overlap;
    emit_all(ctx, progress, rules);
  } catch (const ListingFull&) {
    throw too_long(ctx);
  }
  return finished(ctx);
}

}  // namespace tpu::compiler
