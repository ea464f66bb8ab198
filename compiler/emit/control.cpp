// while, if, case: sequencer loops and branches between straight-line pieces.
//   counted loop             while                        if
//     carried -> homes         carried -> homes             drain; branch on predicate
//     counter = first          drain                        arm: region; results -> homes; drain
//     drain                  L: condition -> SMEM           ..
//   L: body; -> homes           drain; leave if 0
//     drain; counter += step   body; -> homes; drain
//     back to L                back to L
// Carried values and results live in homes (plan/regions.hpp). Trace marks around every iteration
// tell traces and fault reports where a loop is.
#include <algorithm>

#include "emit/context.hpp"
#include "plan/regions.hpp"
#include "vpu/vpu_build.hpp"

namespace tpu::compiler {

using spec::ScalarOp;

namespace {

constexpr int64_t kSmemCounters = 512;  // 4 bytes for each counted loop around

}  // namespace

// The counter as a value in VMEM, for kernels that compute with it.
static bool counter_value(EmitContext& ctx, const Value* counter, int64_t smem, uint32_t id) {
  Buffer& b = ctx.memory.at(counter);
  if (b.reads.empty()) {
    return true;
  }
  b.vmem = take(ctx, b.bytes).value_or(-1);
  if (b.vmem < 0) {
    return false;
  }
  b.locked = true;
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
  access.addr = vmem_addr(b.vmem);
  access.type = static_cast<uint8_t>(isa_elem(counter->type.elem));
  access.lane = 4;
  ctx.sink.insn(ScalarOp::kLds32, kScalarRegister, 0, 0, static_cast<int32_t>(smem));
  Command command;
  command.accesses = {access};
  command.program = ctx.sink.listing.add_program(std::move(program));
  command.body = c;
  ctx.sink.append(std::move(command));
  return true;
}

static bool emit_region(EmitContext& ctx, const KernelProgram& region) {
  ctx.channels.forget_peers();  // registers that another path may not have set
  ++ctx.regions;
  for (const Kernel& k : region.kernels) {
    if (!emit_kernel(ctx, k)) {
      return false;
    }
  }
  --ctx.regions;
  return true;
}

// Its results go to the homes of the results of `owner`.
static void end_region(EmitContext& ctx, const KernelProgram& region, const Op& owner,
                       uint32_t id) {
  yield(ctx.memory, ctx.slots, region.kernels.back(), owner, id);
  ctx.run_moves();
  clean_region(ctx.memory, region);
  ctx.channels.forget_peers();
}

// One iteration of the body, homes to homes.
static bool emit_body(EmitContext& ctx, const Kernel& k, uint32_t id) {
  const Op& op = *k.ops[0];
  const KernelProgram& body = *k.control().regions[1];
  const Region& region = *op.regions[1];
  enter_body(ctx.memory, k, region);
  const Kernel& end = body.kernels.back();
  for (size_t i = 0; i < end.control().carried.size(); ++i) {
    const Value* made = end.control().carried[i];
    if (made != nullptr &&
        std::count(end.control().carried.begin(), end.control().carried.end(), made) == 1) {
      aim_at_home(ctx.memory, body, made, region.args[i].get(), ctx.memory.at(op.result(i)));
    }
  }
  if (!emit_region(ctx, body)) {
    return false;
  }
  end_region(ctx, body, op, id);
  leave_body(ctx.memory, k, region);
  ctx.sink.control(Control::Kind::kDrain);
  ctx.sink.insn(ScalarOp::kMarke, 0, 0, 0, static_cast<int32_t>(id));
  return true;
}

static bool emit_counted(EmitContext& ctx, const Kernel& k, uint32_t id) {
  const CountedLoop& loop = *k.control().counted;
  const Value* counter = k.ops[0]->regions[1]->args[loop.index].get();
  const int64_t smem = kSmemCounters + 4 * static_cast<int64_t>(ctx.counters.size());
  if (smem + 4 > ctx.board.core.smem_kib * 1024) {
    throw Error("counted loops are nested too deeply", "stablehlo.while", k.ops[0]->loc);
  }
  ctx.counters[counter] = smem;
  const auto at = static_cast<int32_t>(smem);
  const int top = ctx.sink.new_label();
  ctx.sink.load_immediate(kScalarRegister, loop.first);
  ctx.sink.insn(ScalarOp::kSts32, 0, 0, kScalarRegister, at);
  ctx.sink.control(Control::Kind::kDrain);
  ctx.sink.control(Control::Kind::kLabel, top);
  ctx.sink.control(Control::Kind::kLoop, -1, loop.trips);
  ctx.ops.enter_loop(loop.trips);
  ctx.sink.insn(ScalarOp::kMarkb, 0, 0, 0, static_cast<int32_t>(id));
  if (!counter_value(ctx, counter, smem, id) || !emit_body(ctx, k, id)) {
    return false;
  }
  ctx.ops.leave_loop(loop.trips);
  Buffer& value = ctx.memory.at(counter);
  if (value.vmem >= 0) {
    value.locked = false;
    ctx.memory.drop(value);
  }
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
  return true;
}

static bool emit_conditional(EmitContext& ctx, const Kernel& k, uint32_t id) {
  const Op& op = *k.ops[0];
  const Region& condition = *op.regions[0];
  const int top = ctx.sink.new_label(), out = ctx.sink.new_label();
  ctx.sink.control(Control::Kind::kDrain);
  ctx.sink.control(Control::Kind::kLabel, top);
  ctx.sink.control(Control::Kind::kLoop);
  ctx.sink.insn(ScalarOp::kMarkb, 0, 0, 0, static_cast<int32_t>(id));
  enter_body(ctx.memory, k, condition);
  if (!emit_region(ctx, *k.control().regions[0])) {
    return false;
  }
  const Kernel& end = k.control().regions[0]->kernels.back();
  ctx.memory.enter(end.order);
  const Value* test = end.control().carried.at(0);
  fetch_scalars(ctx.sink, scalar_places(ctx.memory, {{test, {}}}), id);
  clean_region(ctx.memory, *k.control().regions[0]);
  ctx.channels.forget_peers();
  leave_body(ctx.memory, k, condition);
  ctx.sink.control(Control::Kind::kDrain);
  read_scalar(ctx.sink, 0, Elem::kI1, kScalarRegister);
  ctx.sink.branch(ScalarOp::kBeq, kScalarRegister, 0, out);
  if (!emit_body(ctx, k, id)) {
    return false;
  }
  ctx.sink.branch(ScalarOp::kJmp, 0, 0, top);
  ctx.sink.control(Control::Kind::kEnd);
  ctx.sink.control(Control::Kind::kLabel, out);
  ctx.sink.insn(ScalarOp::kMarke, 0, 0, 0, static_cast<int32_t>(id));
  return true;
}

namespace {

// Behind the regions of a kernel: what they kept in place is free, the results go home.
void leave_regions(EmitContext& ctx, const Kernel& k, const std::vector<Buffer*>& locked,
                   uint32_t id) {
  for (Buffer* b : locked) {
    ctx.memory.unlock(*b);
  }
  ctx.memory.enter(k.end);
  for (const Value* v : k.writes) {
    end_region_home(ctx.memory, ctx.memory.at(v), id);
  }
  ctx.run_moves();
}

}  // namespace

bool emit_while(EmitContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  place_carried(ctx.memory, ctx.slots, k, id);
  ctx.run_moves();
  std::vector<Buffer*> locked;
  if (!k.control().counted || k.control().counted->trips > 0) {
    locked = settle(ctx.memory, k, true, id);
    ctx.run_moves();
    if (!(k.control().counted ? emit_counted(ctx, k, id) : emit_conditional(ctx, k, id))) {
      return false;
    }
  }
  leave_regions(ctx, k, locked, id);
  return true;
}

bool emit_branch(EmitContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  const Op& op = *k.ops[0];
  for (const Value* v : k.writes) {
    give_region_home(ctx.memory, ctx.memory.at(v));
  }
  ctx.run_moves();
  fetch_scalars(ctx.sink, scalar_places(ctx.memory, {k.control().predicate}), id);
  const std::vector<Buffer*> locked = settle(ctx.memory, k, false, id);
  ctx.run_moves();
  const auto arms = static_cast<int64_t>(op.regions.size());
  ctx.sink.control(Control::Kind::kDrain);
  ctx.sink.insn(ScalarOp::kMarkb, 0, 0, 0, static_cast<int32_t>(id));
  if (k.control().predicate.value == nullptr) {
    scalar(ctx, op.operands[0], kScalarRegister);
  } else {
    read_scalar(ctx.sink, 0, op.operand_type(0).elem, kScalarRegister);
  }
  if (op.kind == Kind::kCase) {  // below zero or too large: the last one
    ctx.sink.load_immediate(kLimitRegister, arms);
    ctx.sink.insn(ScalarOp::kSltu, kAddressRegister, kScalarRegister, kLimitRegister, 0);
    ctx.sink.insn(ScalarOp::kAddi, kLimitRegister, kLimitRegister, 0, -1);
    ctx.sink.insn(ScalarOp::kSub, kScalarRegister, kScalarRegister, kLimitRegister, 0);
    ctx.sink.insn(ScalarOp::kMul, kScalarRegister, kScalarRegister, kAddressRegister, 0);
    ctx.sink.insn(ScalarOp::kAdd, kScalarRegister, kScalarRegister, kLimitRegister, 0);
  }
  std::vector<int> labels;
  for (int64_t r = 0; r + 1 < arms; ++r) {
    labels.push_back(ctx.sink.new_label());
    ctx.sink.load_immediate(kLimitRegister, op.kind == Kind::kIf ? 1 : r);
    ctx.sink.branch(ScalarOp::kBeq, kScalarRegister, kLimitRegister, labels.back());
  }
  const int out = ctx.sink.new_label();
  ctx.sink.control(Control::Kind::kChoice);
  // The last one follows the branches.
  for (int64_t n = 0; n < arms; ++n) {
    const auto r = static_cast<size_t>(n == 0 ? arms - 1 : n - 1);
    ctx.sink.control(Control::Kind::kArm);
    if (n > 0) {
      ctx.sink.control(Control::Kind::kLabel, labels[r]);
    }
    const KernelProgram& arm = *k.control().regions[r];
    const Kernel& end = arm.kernels.back();
    for (size_t i = 0; i < end.control().carried.size(); ++i) {
      if (std::count(end.control().carried.begin(), end.control().carried.end(),
                     end.control().carried[i]) == 1) {
        aim_at_home(ctx.memory, arm, end.control().carried[i], nullptr,
                    ctx.memory.at(op.result(i)));
      }
    }
    if (!emit_region(ctx, arm)) {
      return false;
    }
    end_region(ctx, arm, op, id);
    ctx.sink.control(Control::Kind::kDrain);
    if (n + 1 < arms) {
      ctx.sink.branch(ScalarOp::kJmp, 0, 0, out);
    }
  }
  ctx.sink.control(Control::Kind::kEnd);
  ctx.sink.control(Control::Kind::kLabel, out);
  ctx.sink.insn(ScalarOp::kMarke, 0, 0, 0, static_cast<int32_t>(id));
  leave_regions(ctx, k, locked, id);
  return true;
}

}  // namespace tpu::compiler
