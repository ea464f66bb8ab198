// while, if, case, calls of the host: sequencer loops and branches between straight-line pieces.
//   counted loop             while                        if
//     carried -> homes         carried -> homes             drain; branch on predicate
//     counter = first          drain                        arm: region; results -> homes; drain
//     drain                  L: condition -> SMEM           ..
//   L: body; -> homes           drain; leave if 0
//     drain; counter += step   body; -> homes; drain
//     back to L                back to L
// The drains of a counted loop go where its commands allow that (program/loop_fences.hpp).
// Carried values and results live in homes (plan/regions.hpp). Trace marks around every iteration
// tell traces and fault reports where a loop is.
#include "emit/context.hpp"
#include "vpu/vpu_build.hpp"

namespace tpu::compiler {

using spec::ScalarOp;

namespace {

exe::HostStage exe_stage(HostStage stage) {
  switch (stage) {
    case HostStage::kWhole:
      break;
    case HostStage::kStart:
      return exe::HostStage::start;
    case HostStage::kFinish:
      return exe::HostStage::finish;
  }
  return exe::HostStage::whole;
}

void mark(EmitContext& ctx, ScalarOp op, uint32_t id) {
  ctx.sink.insn(op, 0, 0, 0, static_cast<int32_t>(id));
}

// The counter from SMEM to VMEM, for kernels that compute with it.
void store_counter(EmitContext& ctx, Elem elem, const WhilePlan& plan, uint32_t id) {
  VpuProgram program;
  program.header.registers = 1;
  program.header.section[kBody] = 2;
  program.code = {{static_cast<uint8_t>(spec::VpuOp::kScalar), 0, 0, 0, 0},
                  {static_cast<uint8_t>(spec::VpuOp::kStore), 0, 0, 0, 0}};
  auto c = make_command<spec::VpuKernelCommand>(spec::Opcode::kVpuKernel, spec::Queue::kVpu, id);
  c.head.flags = c.kFlat;
  c.row_loop = 255;
  c.col_loop = 3;
  c.loops.fill(1);
  c.rows = c.cols = 1;
  c.scalar[0] = kScalarRegister;
  spec::VpuAccess access{};
  access.addr = vmem_addr(plan.counter_vmem);
  access.type = static_cast<uint8_t>(isa_elem(elem));
  access.lane = 4;
  ctx.sink.insn(ScalarOp::kLds32, kScalarRegister, 0, 0, static_cast<int32_t>(plan.counter_smem));
  Command command;
  command.accesses = {access};
  command.program = ctx.sink.listing.add_program(std::move(program));
  command.body = c;
  ctx.sink.append(std::move(command));
}

void emit_region(EmitContext& ctx, const Schedule& schedule) {
  ctx.channels.forget_peers();  // registers that another path may not have set
  ctx.fetched.forget();
  for (const Step& step : schedule.steps) {
    emit_step(ctx, step);
  }
}

void emit_region(EmitContext& ctx, const RegionPlan& region) {
  emit_region(ctx, region.schedule);
  ctx.sink.run(region.yield);
  ctx.channels.forget_peers();
  ctx.sink.control(Control::Kind::kDrain);
}

// One iteration of the body, homes to homes.
void emit_body(EmitContext& ctx, const RegionPlan& body, uint32_t id) {
  emit_region(ctx, body);
  mark(ctx, ScalarOp::kMarke, id);
}

void emit_counted(EmitContext& ctx, const Step& step, const WhilePlan& plan) {
  const CountedLoop& loop = *step.kernel->control().counted;
  const Value* counter = step.kernel->ops[0]->regions[1]->args[loop.index].get();
  const auto at = static_cast<int32_t>(plan.counter_smem);
  ctx.counters[counter] = plan.counter_smem;
  const int top = ctx.sink.new_label();
  ctx.sink.write_tables();
  ctx.sink.load_immediate(kScalarRegister, loop.first);
  ctx.sink.insn(ScalarOp::kSts32, 0, 0, kScalarRegister, at);
  ctx.sink.control(Control::Kind::kDrain);
  ctx.sink.control(Control::Kind::kLabel, top);
  Control around;
  around.kind = Control::Kind::kLoop;
  around.trips = loop.trips;
  around.flows = ctx.overlap;
  ctx.sink.listing.append(around);
  mark(ctx, ScalarOp::kMarkb, step.op_id);
  if (plan.counter_vmem >= 0) {
    ctx.sink.run(plan.counter_moves);
    store_counter(ctx, counter->type.elem, plan, step.op_id);
  }
  emit_body(ctx, plan.body, step.op_id);
  ctx.sink.insn(ScalarOp::kLds32, kScalarRegister, 0, 0, at);
  ctx.sink.load_immediate(kLimitRegister, loop.step);
  ctx.sink.insn(ScalarOp::kAdd, kScalarRegister, kScalarRegister, kLimitRegister, 0);
  ctx.sink.insn(ScalarOp::kSts32, 0, 0, kScalarRegister, at);
  ctx.sink.insn(ScalarOp::kShli, kScalarRegister, kScalarRegister, 0, 32);
  ctx.sink.load_immediate(kLimitRegister, loop.last());
  ctx.sink.insn(ScalarOp::kShli, kLimitRegister, kLimitRegister, 0, 32);
  ctx.sink.branch(ScalarOp::kBne, kScalarRegister, kLimitRegister, top);
  ctx.sink.control(Control::Kind::kEnd);
  ctx.counters.erase(counter);
}

void emit_conditional(EmitContext& ctx, const Step& step, const WhilePlan& plan) {
  const int top = ctx.sink.new_label(), out = ctx.sink.new_label();
  ctx.sink.control(Control::Kind::kDrain);
  ctx.sink.control(Control::Kind::kLabel, top);
  ctx.sink.control(Control::Kind::kLoop);
  mark(ctx, ScalarOp::kMarkb, step.op_id);
  emit_region(ctx, plan.condition);
  const auto fetched = fetch_scalars(ctx, plan.test, step.op_id);
  ctx.channels.forget_peers();
  ctx.sink.control(Control::Kind::kDrain);
  read_scalar(ctx.sink, fetched.at(0), Elem::kI1, kScalarRegister);
  ctx.sink.branch(ScalarOp::kBeq, kScalarRegister, 0, out);
  emit_body(ctx, plan.body, step.op_id);
  ctx.sink.branch(ScalarOp::kJmp, 0, 0, top);
  ctx.sink.control(Control::Kind::kEnd);
  ctx.sink.control(Control::Kind::kLabel, out);
  mark(ctx, ScalarOp::kMarke, step.op_id);
}

// Less is not worth a line.
constexpr int64_t kNotedBytes = 64 * 1024;

void note_copy(EmitContext& ctx, const Op& loop, const Type& type, const std::string& why) {
  ctx.loop_copies.push_back("loop: " + to_string(type) + " (" + std::to_string(type.bytes()) +
                            " bytes) is copied in each iteration of the while at " +
                            to_string(*loop.loc) + ": " + why);
}

// Results of a body or branch that were made elsewhere than in their homes.
void note_moved_results(EmitContext& ctx, const Op& loop, const Op& owner,
                        const RegionPlan& region) {
  for (const size_t i : region.copied) {
    if (owner.type(i).bytes() >= kNotedBytes) {
      note_copy(ctx, loop, owner.type(i),
                &owner == &loop ? "carried value " + std::to_string(i) +
                                      " is made elsewhere, since its old value is needed meanwhile"
                                : "result " + std::to_string(i) + " of " + source_name(owner.kind) +
                                      " at " + to_string(*owner.loc) + " has a place of its own");
    }
  }
}

// Updates that are made in copies, also in branches.
void note_updates(EmitContext& ctx, const Op& loop, const Schedule& schedule) {
  for (const Step& step : schedule.steps) {
    const auto* dynamic = std::get_if<DynamicPlan>(&step.plan);
    const auto* indexed = std::get_if<IndexedPlan>(&step.plan);
    const int64_t copied = dynamic != nullptr   ? dynamic->copied
                           : indexed != nullptr ? indexed->copied
                                                : 0;
    if (copied >= kNotedBytes) {
      const Op& update = *step.kernel->ops[0];
      note_copy(ctx, loop, update.type(),
                std::string(source_name(update.kind)) + " at " + to_string(*update.loc) +
                    " updates an array that is still needed as it was");
    }
    if (const auto* branch = std::get_if<BranchPlan>(&step.plan)) {
      for (const RegionPlan& arm : branch->arms) {
        note_updates(ctx, loop, arm.schedule);
        note_moved_results(ctx, loop, *step.kernel->ops[0], arm);
      }
    }
  }
}

void note_copies(EmitContext& ctx, const Step& step, const RegionPlan& body) {
  const Op& loop = *step.kernel->ops[0];
  note_updates(ctx, loop, body.schedule);
  note_moved_results(ctx, loop, loop, body);
}

// The predicate of an if, or the index of a case: below zero or too large means the last arm.
void read_choice(EmitContext& ctx, const Op& op, const std::map<size_t, int64_t>& fetched,
                 const BranchPlan& plan) {
  if (plan.predicate.empty()) {
    scalar(ctx, op.operands[0], kScalarRegister);
  } else {
    read_scalar(ctx.sink, fetched.at(0), op.operand_type(0).elem, kScalarRegister);
  }
  if (op.kind == Kind::kCase) {
    ctx.sink.load_immediate(kLimitRegister, static_cast<int64_t>(plan.arms.size()));
    ctx.sink.insn(ScalarOp::kSltu, kAddressRegister, kScalarRegister, kLimitRegister, 0);
    ctx.sink.insn(ScalarOp::kAddi, kLimitRegister, kLimitRegister, 0, -1);
    ctx.sink.insn(ScalarOp::kSub, kScalarRegister, kScalarRegister, kLimitRegister, 0);
    ctx.sink.insn(ScalarOp::kMul, kScalarRegister, kScalarRegister, kAddressRegister, 0);
    ctx.sink.insn(ScalarOp::kAdd, kScalarRegister, kScalarRegister, kLimitRegister, 0);
  }
}

}  // namespace

// The host may touch HBM when all commands in front are done, and those behind have not begun. For
// a transfer beside kernels, only the commands that use its bytes count; those behind come after
// the call that finishes it.
void emit_host(EmitContext& ctx, const Step& step, const HostPlan& plan) {
  auto& calls = ctx.sink.listing.host_calls;
  const HostStage stage = step.kernel->host().stage;
  if (stage == HostStage::kWhole) {
    ctx.sink.control(Control::Kind::kDrain);
  } else if (stage == HostStage::kStart) {
    Control await;
    await.kind = Control::Kind::kAwait;
    await.range = {.space = spec::Space::kHbm,
                   .slot = plan.place.slot,
                   .lo = plan.place.offset,
                   .hi = plan.place.offset + plan.bytes,
                   .write = step.kernel->reads.empty()};
    ctx.sink.listing.append(await);
  }
  ctx.sink.insn(ScalarOp::kHcall, 0, 0, 0, static_cast<int32_t>(calls.size()));
  calls.push_back({step.kernel->ops[0], step.op_id, plan.place, exe_stage(stage)});
}

void emit_while(EmitContext& ctx, const Step& step, const WhilePlan& plan) {
  note_copies(ctx, step, plan.body);
  if (plan.counter_smem >= 0) {
    emit_counted(ctx, step, plan);
  } else if (plan.runs) {
    emit_conditional(ctx, step, plan);
  }
  ctx.fetched.forget();
}

void emit_branch(EmitContext& ctx, const Step& step, const BranchPlan& plan) {
  const Op& op = *step.kernel->ops[0];
  const auto fetched = fetch_scalars(ctx, plan.predicate, step.op_id);
  ctx.sink.run(plan.settled);
  ctx.sink.control(Control::Kind::kDrain);
  mark(ctx, ScalarOp::kMarkb, step.op_id);
  read_choice(ctx, op, fetched, plan);
  const size_t arms = plan.arms.size();
  std::vector<int> labels;
  for (size_t r = 0; r + 1 < arms; ++r) {
    labels.push_back(ctx.sink.new_label());
    ctx.sink.load_immediate(kLimitRegister, op.kind == Kind::kIf ? 1 : static_cast<int64_t>(r));
    ctx.sink.branch(ScalarOp::kBeq, kScalarRegister, kLimitRegister, labels.back());
  }
  const int out = ctx.sink.new_label();
  ctx.sink.control(Control::Kind::kChoice);
  // The last one follows the branches.
  for (size_t n = 0; n < arms; ++n) {
    const size_t r = n == 0 ? arms - 1 : n - 1;
    ctx.sink.control(Control::Kind::kArm);
    if (n > 0) {
      ctx.sink.control(Control::Kind::kLabel, labels[r]);
    }
    emit_region(ctx, plan.arms[r]);
    if (n + 1 < arms) {
      ctx.sink.branch(ScalarOp::kJmp, 0, 0, out);
    }
  }
  ctx.sink.control(Control::Kind::kEnd);
  ctx.sink.control(Control::Kind::kLabel, out);
  mark(ctx, ScalarOp::kMarke, step.op_id);
  ctx.fetched.forget();
}

}  // namespace tpu::compiler
