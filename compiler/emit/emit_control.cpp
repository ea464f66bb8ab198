// while, if, case: sequencer loops and branches between straight-line pieces.
//   counted loop             while                        if
//     carried -> homes         carried -> homes             drain; branch on predicate
//     counter = first          drain                        arm: region; results -> homes; drain
//     drain                  L: condition -> SMEM           ..
//   L: body; -> homes           drain; leave if 0
//     drain; counter += step   body; -> homes; drain
//     back to L                back to L
// Carried values and results live in homes (emit_regions.cpp). Trace marks around every iteration
// tell traces and fault reports where a loop is.
#include <algorithm>

#include "emit/emitter.hpp"
#include "vpu/vpu_build.hpp"

namespace tpu::compiler {

using spec::ScalarOp;

namespace {

constexpr int64_t kSmemCounters = 512;  // 4 bytes for each counted loop around

}  // namespace

// Homes of the carried values, and the initial values in them. A value that dies here gives its
// place to the home.
void Emitter::place_carried(const Kernel& k, uint32_t id) {
  const Op& op = *k.ops[0];
  std::vector<size_t> order;
  std::vector<Move> moves;
  pinned_.clear();
  for (size_t i = 0; i < k.carried.size(); ++i) {
    if (k.carried[i] != nullptr && k.carried[i]->type.bytes() > 0) {
      order.push_back(i);
      pinned_.insert(&buffer(k.carried[i]));
    }
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const int64_t left = op.type(a).bytes(), right = op.type(b).bytes();
    return left != right ? left < right : a < b;
  });
  // Before any of them changes hands.
  std::vector<Place> source(k.carried.size());
  for (const size_t i : order) {
    source[i] = place_of(buffer(k.carried[i]));
  }
  for (const size_t i : order) {
    Buffer &init = buffer(k.carried[i]), &out = buffer(op.result(i));
    const bool dies = next_read(init) == INT32_MAX && !init.locked && !init.must_store;
    const bool fits = locked_bytes_ + round_up(out.bytes, kAlign) <= lock_limit_;
    if (dies && fits && init.vmem >= 0 && out.target < 0) {
      lock(out);
      out.vmem = init.vmem;
      init.vmem = -1;
    } else if (dies && !fits && out.slot < 0 && init.scratch && init.in_hbm && init.vmem < 0) {
      out.slot = init.slot;
      out.offset = init.offset;
      out.scratch = true;
      init.scratch = init.in_hbm = false;
      init.slot = -1;
    }
    give_region_home(out);
    moves.push_back({source[i], place_of(out), out.bytes, elem_bytes(out.value->type.elem)});
  }
  move_all(std::move(moves), id);
  pinned_.clear();
}

// The arguments of a region lie in the homes.
void Emitter::enter_body(const Kernel& k, const Region& region) {
  for (size_t i = 0; i < region.args.size(); ++i) {
    if (k.carried[i] == nullptr) {
      continue;
    }
    Buffer& arg = buffer(region.args[i].get());
    const Buffer& home = buffer(k.ops[0]->result(i));
    arg.vmem = home.vmem;
    arg.slot = home.vmem < 0 ? home.slot : -1;
    arg.offset = home.offset;
    arg.in_hbm = home.vmem < 0;
    arg.locked = home.vmem >= 0;
  }
}

void Emitter::leave_body(const Kernel& k, const Region& region) {
  for (size_t i = 0; i < region.args.size(); ++i) {
    if (k.carried[i] == nullptr) {
      continue;
    }
    Buffer& arg = buffer(region.args[i].get());
    if (arg.vmem >= 0) {
      give(arg.vmem);
    }
    arg.vmem = arg.slot = -1;
    arg.in_hbm = arg.locked = false;
  }
}

// The counter as a value in VMEM, for kernels that compute with it.
void Emitter::counter_value(const Value* counter, int64_t smem, uint32_t id) {
  Buffer& b = buffer(counter);
  if (b.reads.empty()) {
    return;
  }
  try {
    b.vmem = take(b.bytes);
  } catch (const VmemFull&) {
    throw Error("no room in VMEM for a loop counter");
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
  insn(ScalarOp::kLds32, kScalarRegister, 0, 0, static_cast<int32_t>(smem));
  Command command;
  command.accesses = {access};
  command.program = listing.add_program(std::move(program));
  command.body = c;
  listing.append(std::move(command));
}

// One iteration of the body, homes to homes.
void Emitter::emit_body(const Kernel& k, uint32_t id) {
  const Op& op = *k.ops[0];
  const KernelProgram& body = *k.regions[1];
  const Region& region = *op.regions[1];
  enter_body(k, region);
  const Kernel& end = body.kernels.back();
  for (size_t i = 0; i < end.carried.size(); ++i) {
    const Value* made = end.carried[i];
    if (made != nullptr && std::count(end.carried.begin(), end.carried.end(), made) == 1) {
      aim_at_home(body, made, region.args[i].get(), buffer(op.result(i)));
    }
  }
  yield(emit_region(body), op, id);
  clean_region(body);
  leave_body(k, region);
  control(Control::Kind::kDrain);
  insn(ScalarOp::kMarke, 0, 0, 0, static_cast<int32_t>(id));
}

void Emitter::emit_counted(const Kernel& k, uint32_t id) {
  const CountedLoop& loop = *k.counted;
  const Value* counter = k.ops[0]->regions[1]->args[loop.index].get();
  const int64_t smem = kSmemCounters + 4 * static_cast<int64_t>(counters_.size());
  if (smem + 4 > board_.core.smem_kib * 1024) {
    throw Error("counted loops are nested too deeply", "stablehlo.while", k.ops[0]->loc);
  }
  counters_[counter] = smem;
  const auto at = static_cast<int32_t>(smem);
  const int top = new_label();
  load_immediate(kScalarRegister, loop.first);
  insn(ScalarOp::kSts32, 0, 0, kScalarRegister, at);
  control(Control::Kind::kDrain);
  control(Control::Kind::kLabel, top);
  control(Control::Kind::kLoop, -1, loop.trips);
  times_ *= loop.trips;
  insn(ScalarOp::kMarkb, 0, 0, 0, static_cast<int32_t>(id));
  counter_value(counter, smem, id);
  emit_body(k, id);
  times_ /= loop.trips;
  Buffer& value = buffer(counter);
  if (value.vmem >= 0) {
    value.locked = false;
    give(value.vmem);
    value.vmem = -1;
  }
  insn(ScalarOp::kLds32, kScalarRegister, 0, 0, at);
  load_immediate(kLimitRegister, loop.step);
  insn(ScalarOp::kAdd, kScalarRegister, kScalarRegister, kLimitRegister, 0);
  insn(ScalarOp::kSts32, 0, 0, kScalarRegister, at);
  insn(ScalarOp::kShli, kScalarRegister, kScalarRegister, 0, 32);
  load_immediate(kLimitRegister, loop.last());
  insn(ScalarOp::kShli, kLimitRegister, kLimitRegister, 0, 32);
  branch(ScalarOp::kBne, kScalarRegister, kLimitRegister, top);
  control(Control::Kind::kEnd);
  counters_.erase(counter);
}

void Emitter::emit_conditional(const Kernel& k, uint32_t id) {
  const Op& op = *k.ops[0];
  const Region& condition = *op.regions[0];
  const int top = new_label(), out = new_label();
  control(Control::Kind::kDrain);
  control(Control::Kind::kLabel, top);
  control(Control::Kind::kLoop);
  insn(ScalarOp::kMarkb, 0, 0, 0, static_cast<int32_t>(id));
  enter_body(k, condition);
  const Kernel& end = emit_region(*k.regions[0]);
  now_ = end.order;
  const Value* test = end.carried.at(0);
  fetch_scalars({{test, {}}}, id);
  clean_region(*k.regions[0]);
  leave_body(k, condition);
  control(Control::Kind::kDrain);
  read_scalar(0, Elem::kI1, kScalarRegister);
  branch(ScalarOp::kBeq, kScalarRegister, 0, out);
  emit_body(k, id);
  branch(ScalarOp::kJmp, 0, 0, top);
  control(Control::Kind::kEnd);
  control(Control::Kind::kLabel, out);
  insn(ScalarOp::kMarke, 0, 0, 0, static_cast<int32_t>(id));
}

void Emitter::emit_while(const Kernel& k) {
  const uint32_t id = op_id(k);
  place_carried(k, id);
  if (!k.counted || k.counted->trips > 0) {
    const std::vector<Buffer*> locked = settle(k, true, id);
    if (k.counted) {
      emit_counted(k, id);
    } else {
      emit_conditional(k, id);
    }
    for (Buffer* b : locked) {
      unlock(*b);
    }
  }
  now_ = k.end;
  for (const Value* v : k.writes) {
    end_region_home(buffer(v), id);
  }
}

void Emitter::emit_branch(const Kernel& k) {
  const uint32_t id = op_id(k);
  const Op& op = *k.ops[0];
  for (const Value* v : k.writes) {
    give_region_home(buffer(v));
  }
  fetch_scalars(k.starts, id);
  const std::vector<Buffer*> locked = settle(k, false, id);
  const auto arms = static_cast<int64_t>(op.regions.size());
  control(Control::Kind::kDrain);
  insn(ScalarOp::kMarkb, 0, 0, 0, static_cast<int32_t>(id));
  if (k.starts[0].value == nullptr) {
    scalar(op.operands[0], kScalarRegister);
  } else {
    read_scalar(0, op.operand_type(0).elem, kScalarRegister);
  }
  if (op.kind == Kind::kCase) {  // below zero or too large: the last one
    load_immediate(kLimitRegister, arms);
    insn(ScalarOp::kSltu, kAddressRegister, kScalarRegister, kLimitRegister, 0);
    insn(ScalarOp::kAddi, kLimitRegister, kLimitRegister, 0, -1);
    insn(ScalarOp::kSub, kScalarRegister, kScalarRegister, kLimitRegister, 0);
    insn(ScalarOp::kMul, kScalarRegister, kScalarRegister, kAddressRegister, 0);
    insn(ScalarOp::kAdd, kScalarRegister, kScalarRegister, kLimitRegister, 0);
  }
  std::vector<int> labels;
  for (int64_t r = 0; r + 1 < arms; ++r) {
    labels.push_back(new_label());
    load_immediate(kLimitRegister, op.kind == Kind::kIf ? 1 : r);
    branch(ScalarOp::kBeq, kScalarRegister, kLimitRegister, labels.back());
  }
  const int out = new_label();
  control(Control::Kind::kChoice);
  // The last one follows the branches.
  for (int64_t n = 0; n < arms; ++n) {
    const auto r = static_cast<size_t>(n == 0 ? arms - 1 : n - 1);
    control(Control::Kind::kArm);
    if (n > 0) {
      control(Control::Kind::kLabel, labels[r]);
    }
    const KernelProgram& arm = *k.regions[r];
    const Kernel& end = arm.kernels.back();
    for (size_t i = 0; i < end.carried.size(); ++i) {
      if (std::count(end.carried.begin(), end.carried.end(), end.carried[i]) == 1) {
        aim_at_home(arm, end.carried[i], nullptr, buffer(op.result(i)));
      }
    }
    yield(emit_region(arm), op, id);
    clean_region(arm);
    control(Control::Kind::kDrain);
    if (n + 1 < arms) {
      branch(ScalarOp::kJmp, 0, 0, out);
    }
  }
  control(Control::Kind::kEnd);
  control(Control::Kind::kLabel, out);
  insn(ScalarOp::kMarke, 0, 0, 0, static_cast<int32_t>(id));
  for (Buffer* b : locked) {
    unlock(*b);
  }
  now_ = k.end;
  for (const Value* v : k.writes) {
    end_region_home(buffer(v), id);
  }
}

}  // namespace tpu::compiler
