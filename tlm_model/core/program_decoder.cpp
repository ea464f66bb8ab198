// What a command's descriptor means: plans, extents, costs. The rules whose breach is a DESCRIPTOR
// fault are spec/command/rules.hpp and, for VPU programs, tlm_model/vpu.
#include "core/program_decoder.hpp"

#include <algorithm>
#include <cstring>

#include "command/operands.hpp"
#include "command/rules.hpp"
#include "mxu/mxu_command.hpp"
#include "tpu/spec/fault_regs.hpp"

namespace tpu::model {
namespace {

void mark_bad(DecodedCommand& command, uint32_t detail, std::string text) {
  if (command.bad == 0 && detail != 0) {
    command.bad = detail;
    command.bad_text = std::move(text);
  }
}

void mark_bad(DecodedCommand& command, spec::Violation violation) {
  mark_bad(command, violation.detail, std::move(violation.text));
}

template <typename T>
T load_struct(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

bool is_scalar_op(uint8_t op) {
  return std::ranges::any_of(spec::kScalarInsns, [op](const spec::ScalarInfo& info) {
    return static_cast<uint8_t>(info.op) == op;
  });
}

Operand operand_of(const spec::CommandOperand& operand) {
  return {operand.address, operand.bytes.extent()};
}

void add_operands(DecodedCommand& command, std::initializer_list<const spec::Addr*> addresses) {
  for (const spec::Addr* address : addresses) {
    const auto i = static_cast<size_t>(command.operands++);
    command.operand_reg[i] = address->reg;
    if (i < spec::kHbmOperands) {
      command.slot[i] = address->slot;
      command.slot_reg[i] = address->slot_reg;
    }
  }
}

}  // namespace

ProgramDecoder::ProgramDecoder(Program& program, const spec::BoardParams& params)
    : program_(program), params_(params), shape_(spec::mxu_shape(params)) {}

ProgramItem ProgramDecoder::decode_item(uint32_t word) {
  ProgramItem item;
  const std::byte* bytes = program_.code_.data() + size_t{word} * 8;
  const size_t left = program_.code_.size() - size_t{word} * 8;
  const auto op = std::to_integer<uint8_t>(*bytes);
  if (op >= 32) {
    item.insn = load_struct<spec::ScalarInsn>(bytes);
    item.next = word + 1;
    const bool registers_ok = item.insn.rd < 32 && item.insn.rs2 < 32;  // rs1 may name a semaphore
    const bool named_sem = item.insn.op == static_cast<uint8_t>(spec::ScalarOp::kSwait) ||
                           item.insn.op == static_cast<uint8_t>(spec::ScalarOp::kSsignal);
    const bool rs1_ok = named_sem ? item.insn.rs1 < params_.core.semaphores : item.insn.rs1 < 32;
    if (is_scalar_op(op) && registers_ok && rs1_ok) {
      item.kind = ProgramItem::Kind::kScalar;
    }
    return item;
  }
  const spec::CommandInfo* info = spec::command_info(op);
  if (info == nullptr || left < sizeof(spec::CommandHeader)) {
    return item;
  }
  const auto head = load_struct<spec::CommandHeader>(bytes);
  if (head.words < sizeof head / 8 || size_t{head.words} * 8 > left) {
    return item;
  }
  item.kind = ProgramItem::Kind::kCommand;
  item.next = word + head.words;
  item.command = static_cast<uint32_t>(program_.commands_.size());
  DecodedCommand& command = program_.commands_.emplace_back();
  decode_command(word, command);
  item.queue = command.queue;
  item.least_cycles = least_cycles(command);
  return item;
}

void ProgramDecoder::decode_command(uint32_t word, DecodedCommand& command) {
  const std::byte* bytes = program_.code_.data() + size_t{word} * 8;
  const auto head = load_struct<spec::CommandHeader>(bytes);
  command.pc = word;
  command.op_id = head.op_id;
  command.opcode = static_cast<spec::Opcode>(head.opcode);
  command.queue = head.queue;
  command.wait = head.wait;
  command.signal = head.signal;
  mark_bad(command, spec::violation(head, params_));
  const spec::CommandInfo& info = *spec::command_info(head.opcode);
  uint32_t expected = static_cast<uint32_t>(info.bytes) / 8;
  if (command.opcode == spec::Opcode::kVpuKernel &&
      size_t{head.words} * 8 >= sizeof(spec::VpuKernelCommand)) {
    expected += load_struct<spec::VpuKernelCommand>(bytes).accesses *
                static_cast<uint32_t>(sizeof(spec::VpuAccess) / 8);
  }
  if (head.words != expected) {
    mark_bad(command, spec::fault::kDetailLength,
             "command of " + std::to_string(head.words) + " words, " + std::to_string(expected) +
                 " expected");
    return;
  }
  decode_body(head, bytes, command);
}

void ProgramDecoder::decode_body(const spec::CommandHeader& head, const std::byte* bytes,
                                 DecodedCommand& command) {
  switch (static_cast<spec::Opcode>(head.opcode)) {
    case spec::Opcode::kNop:
      break;
    case spec::Opcode::kMatmul:
      decode_matmul(load_struct<spec::MatmulCommand>(bytes), command);
      break;
    case spec::Opcode::kVpuKernel:
      decode_vpu(bytes, command);
      break;
    case spec::Opcode::kTranspose:
      decode_transpose(load_struct<spec::TransposeCommand>(bytes), command);
      break;
    case spec::Opcode::kDma:
      decode_dma(load_struct<spec::DmaCommand>(bytes), command);
      break;
    case spec::Opcode::kFill:
      decode_fill(load_struct<spec::FillCommand>(bytes), command);
      break;
    case spec::Opcode::kDmaIndexed:
      decode_indexed(load_struct<spec::DmaIndexedCommand>(bytes), command);
      break;
  }
}

// The command keeps its rules: what follows may rely on counts and strides that can be.
template <typename C>
bool ProgramDecoder::begin(const C& c, DecodedCommand& command) const {
  command.empty = spec::is_empty(c);
  if (command.bad == 0) {
    mark_bad(command, spec::violation(c, params_));
  }
  return command.bad == 0 && !command.empty;
}

void ProgramDecoder::decode_matmul(const spec::MatmulCommand& c, DecodedCommand& command) {
  add_operands(command, {&c.out, &c.lhs, &c.rhs});
  if (!begin(c, command)) {
    return;
  }
  MatmulPlan plan;
  plan.job = mxu_job(c);
  const auto operands = spec::operands(c);
  plan.out = operand_of(operands[0]);
  plan.lhs = operand_of(operands[1]);
  plan.rhs = operand_of(operands[2]);
  plan.bytes = {operands[0].bytes, operands[1].bytes, operands[2].bytes};
  plan.overwrites = !plan.job.accumulate && spec::is_one_run(plan.bytes[0]);
  plan.timing = spec::matmul_timing(shape_, c);
  plan.flops = static_cast<uint64_t>(2 * plan.job.rows() * plan.job.n() * plan.job.taps()) *
               static_cast<uint64_t>(plan.job.k());
  command.plan = std::move(plan);
}

const VpuProgram* ProgramDecoder::vpu_program(uint32_t offset) {
  auto it = program_.vpu_programs_.find(offset);
  if (it == program_.vpu_programs_.end()) {
    it = program_.vpu_programs_.emplace(offset, VpuProgram::decode(program_.code_, offset)).first;
  }
  return &it->second;
}

void ProgramDecoder::decode_vpu(const std::byte* bytes, DecodedCommand& command) {
  VpuPlan plan;
  plan.command = load_struct<spec::VpuKernelCommand>(bytes);
  if (plan.command.accesses > kVpuAccesses) {
    return mark_bad(command, spec::fault::kDetailVpuProgram,
                    "more accesses than a kernel may have");
  }
  std::vector<int64_t> bases;
  for (size_t i = 0; i < plan.command.accesses; ++i) {
    plan.accesses.push_back(load_struct<spec::VpuAccess>(bytes + sizeof(spec::VpuKernelCommand) +
                                                         i * sizeof(spec::VpuAccess)));
    const spec::Addr& address = plan.accesses.back().addr;
    add_operands(command, {&address});
    mark_bad(command, spec::violation(plan.accesses.back()));
    bases.push_back(address.offset);
    plan.dynamic = plan.dynamic || address.reg != 0;
  }
  for (size_t i = 0; i < command.scalar_reg.size(); ++i) {
    command.scalar_reg[i] = plan.command.scalar[i];
    plan.dynamic = plan.dynamic || command.scalar_reg[i] != 0;
  }
  mark_bad(command, spec::violation(plan.command));
  if (command.bad != 0) {
    return;
  }
  try {
    plan.program = vpu_program(plan.command.program);
    VpuKernel kernel(*plan.program, plan.command, plan.accesses, bases, {});
    const std::string loops = kernel.check_loops();
    if (!loops.empty()) {
      return mark_bad(command, spec::fault::kDetailVpuProgram, loops);
    }
    plan.cycles = spec::vpu_cycles(params_, plan.command, plan.accesses, plan.program->sections());
    // Instructions without a slot cost no cycle, but a loop's turn is never free of work.
    const uint64_t turns = kernel.executions(static_cast<int>(VpuSection::kBody));
    mark_bad(command, spec::violation_of_cycles(
                          static_cast<double>(std::max(plan.cycles.free_at, turns)), params_));
    if (command.bad != 0) {
      return;
    }
    // A kernel that leaves VMEM faults when it starts, as the commands of other engines do.
    plan.dynamic =
        plan.dynamic || !kernel.check(static_cast<uint64_t>(params_.core.vmem_kib) * 1024).empty();
    if (!plan.dynamic) {
      plan.fixed.emplace(std::move(kernel));
      plan.prints = plan.fixed->footprints();
    }
  } catch (const VpuError& error) {
    return mark_bad(command, spec::fault::kDetailVpuProgram, error.what());
  }
  command.plan = std::move(plan);
}

void ProgramDecoder::decode_transpose(const spec::TransposeCommand& c, DecodedCommand& command) {
  add_operands(command, {&c.src, &c.dst});
  if (!begin(c, command)) {
    return;
  }
  TransposePlan plan;
  plan.shape = {.elem_bytes = c.elem_bytes,
                .batch = c.batch,
                .rows = c.rows,
                .cols = c.cols,
                .src_pitch = c.src_pitch,
                .dst_pitch = c.dst_pitch,
                .src_batch = c.src_batch,
                .dst_batch = c.dst_batch};
  const auto operands = spec::operands(c);
  plan.src = operand_of(operands[0]);
  plan.dst = operand_of(operands[1]);
  plan.bytes = {operands[0].bytes, operands[1].bytes};
  plan.cycles = spec::transpose_cycles(params_, c);
  command.plan = std::move(plan);
}

void ProgramDecoder::decode_dma(const spec::DmaCommand& c, DecodedCommand& command) {
  add_operands(command, {&c.src, &c.dst});
  command.peer_reg = c.peer_reg;
  if (!begin(c, command)) {
    return;
  }
  DmaPlan plan;
  const auto operands = spec::operands(c);
  plan.remote = operands[1].remote;
  plan.src = operand_of(operands[0]);
  plan.dst = operand_of(operands[1]);
  plan.box = spec::transfer_box(c);
  plan.bytes = spec::transfer_bytes(params_, c);
  plan.fixed_cycles =
      spec::transfer_fixed_cycles(params_, spec::is_hbm(c.src), spec::is_hbm(c.dst), plan.remote);
  command.plan = plan;
}

void ProgramDecoder::decode_fill(const spec::FillCommand& c, DecodedCommand& command) {
  add_operands(command, {&c.dst});
  if (!begin(c, command)) {
    return;
  }
  DmaPlan plan;
  plan.is_fill = true;
  plan.pattern = c.pattern;
  plan.dst = operand_of(spec::operands(c)[0]);
  plan.box = spec::transfer_box(c);
  plan.bytes = spec::transfer_bytes(params_, c);
  plan.fixed_cycles = spec::transfer_fixed_cycles(params_, false, spec::is_hbm(c.dst), false);
  command.plan = plan;
}

// Every record of the list is checked at start.
void ProgramDecoder::decode_indexed(const spec::DmaIndexedCommand& c, DecodedCommand& command) {
  add_operands(command, {&c.src, &c.dst, &c.list});
  if (!begin(c, command)) {
    return;
  }
  IndexedPlan plan;
  const auto operands = spec::operands(c);
  plan.scatter = c.scatter();
  plan.records = c.records;
  plan.unit = c.unit;
  plan.record_stride = c.record_stride;
  plan.span = c.span;
  plan.window = spec::indexed_window(c).extent();
  plan.list = operand_of(operands[2]);
  DmaPlan& transfer = plan.transfer;
  transfer.src = operand_of(operands[0]);
  transfer.dst = operand_of(operands[1]);
  transfer.box = spec::transfer_box(c);
  transfer.bytes = spec::transfer_bytes(params_, c);
  transfer.fixed_cycles =
      spec::transfer_fixed_cycles(params_, spec::is_hbm(c.src), spec::is_hbm(c.dst), false);
  command.plan = plan;
}

}  // namespace tpu::model
