#include "emit/command_sink.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "emit/registers.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kCopyPieceBytes = 512 * 1024;
constexpr int64_t kMostElements = int64_t{1} << 30;  // along one stride of a command
constexpr size_t kMostStrides = std::tuple_size_v<decltype(spec::DmaCommand::counts)>;

spec::Queue queue_for(const spec::Addr& dst) {
  return static_cast<spec::Space>(dst.space) == spec::Space::kHbm ? spec::Queue::kDmaOut
                                                                  : spec::Queue::kDmaIn;
}

spec::Addr moved(spec::Addr at, int64_t bytes) {
  at.offset += bytes;
  return at;
}

// More than five strides, and counts beyond what a field holds, become commands of their own:
// `part(src_offset, dst_offset)` makes each while `dims` are its own. False if one command does.
template <typename Part>
bool in_parts(std::vector<CopyDim>& dims, const Part& part) {
  const auto overlong =
      std::find_if(dims.begin(), dims.end(), [](const CopyDim& d) { return d.n > kMostElements; });
  if (overlong != dims.end()) {
    const CopyDim whole = *overlong;
    for (int64_t i = 0; i < whole.n; i += kMostElements) {
      overlong->n = std::min(kMostElements, whole.n - i);
      part(i * whole.src, i * whole.dst);
    }
    return true;
  }
  if (dims.size() > kMostStrides) {
    const CopyDim outer = dims.front();
    dims.erase(dims.begin());
    for (int64_t i = 0; i < outer.n; ++i) {
      part(i * outer.src, i * outer.dst);
    }
    return true;
  }
  return false;
}

int unused_bits(Elem e) { return e == Elem::kI1 ? 63 : 64 - 8 * static_cast<int>(elem_bytes(e)); }

}  // namespace

void CommandSink::copy(const spec::Addr& src, const spec::Addr& dst, int64_t elem_bytes,
                       std::vector<CopyDim> dims, uint32_t op_id) {
  dims = merged(std::move(dims));
  const auto part = [&](int64_t src_offset, int64_t dst_offset) {
    copy(moved(src, src_offset), moved(dst, dst_offset), elem_bytes, dims, op_id);
  };
  if (in_parts(dims, part)) {
    return;
  }
  auto c = make_command<spec::DmaCommand>(spec::Opcode::kDma, queue_for(dst), op_id);
  c.src = src;
  c.dst = dst;
  c.elem_bytes = static_cast<uint32_t>(elem_bytes);
  c.counts.fill(1);
  const size_t shift = kMostStrides - dims.size();
  for (size_t i = 0; i < dims.size(); ++i) {
    c.counts[shift + i] = static_cast<uint32_t>(dims[i].n);
    c.src_strides[shift + i] = dims[i].src;
    c.dst_strides[shift + i] = dims[i].dst;
  }
  if (dims.empty()) {
    c.src_strides[4] = c.dst_strides[4] = elem_bytes;
  }
  Command command;
  command.body = c;
  append(std::move(command));
}

void CommandSink::copy_bytes(const spec::Addr& src, const spec::Addr& dst, int64_t bytes,
                             int64_t elem_bytes, uint32_t op_id) {
  for (int64_t at = 0; at < bytes; at += kCopyPieceBytes) {
    const int64_t n = std::min(kCopyPieceBytes, bytes - at) / elem_bytes;
    copy(moved(src, at), moved(dst, at), elem_bytes, {{n, elem_bytes, elem_bytes}}, op_id);
  }
}

void CommandSink::fill(const spec::Addr& dst, int64_t elem_bytes, int64_t count, uint64_t pattern,
                       uint32_t op_id) {
  fill_box(dst, elem_bytes, {{count, elem_bytes, elem_bytes}}, pattern, op_id);
}

void CommandSink::fill_box(const spec::Addr& dst, int64_t elem_bytes, std::vector<CopyDim> dims,
                           uint64_t pattern, uint32_t op_id) {
  for (CopyDim& d : dims) {
    d.src = d.dst;
  }
  dims = merged(std::move(dims));
  const auto part = [&](int64_t, int64_t offset) {
    fill_box(moved(dst, offset), elem_bytes, dims, pattern, op_id);
  };
  if (in_parts(dims, part)) {
    return;
  }
  auto c = make_command<spec::FillCommand>(spec::Opcode::kFill, queue_for(dst), op_id);
  c.dst = dst;
  c.elem_bytes = static_cast<uint32_t>(elem_bytes);
  c.counts.fill(1);
  c.dst_strides[4] = elem_bytes;
  const size_t shift = kMostStrides - dims.size();
  for (size_t i = 0; i < dims.size(); ++i) {
    c.counts[shift + i] = static_cast<uint32_t>(dims[i].n);
    c.dst_strides[shift + i] = dims[i].dst;
  }
  c.pattern = pattern;
  Command command;
  command.body = c;
  append(std::move(command));
}

void CommandSink::run(const std::vector<Move>& moves) {
  for (const Move& m : moves) {
    copy_bytes(m.src, m.dst, m.bytes, m.elem_bytes, m.op_id);
  }
}

void CommandSink::copy_window(const spec::Addr& src, const spec::Addr& dst, int64_t unit,
                              std::vector<CopyDim> dims, const MemRange& window, uint32_t id) {
  const size_t before = listing.items.size();
  copy(src, dst, unit, std::move(dims), id);
  for (size_t i = before; i < listing.items.size(); ++i) {
    if (auto* command = std::get_if<Command>(&listing.items[i])) {
      command->windows.push_back(window);
    }
  }
}

int CommandSink::append(Command command) {
  set_moving(command);
  return listing.append(std::move(command));
}

namespace {

// What the command may touch in all iterations.
MemRange window_of(MemRange range, const MovingAddress& moving) {
  const int64_t stride = std::abs(moving.stride), all = (moving.trips - 1) * stride;
  if (range.pitch == 0 && range.hi - range.lo <= stride) {
    range.pitch = stride;
    range.width = range.hi - range.lo;
  } else if (range.pitch == 0 || stride % range.pitch != 0) {
    range.pitch = range.width = 0;
  }
  (moving.stride < 0 ? range.lo : range.hi) += moving.stride < 0 ? -all : all;
  return range;
}

std::vector<spec::Addr*> operands_of(Command& command) {
  if (auto* dma = std::get_if<spec::DmaCommand>(&command.body)) {
    return {&dma->src, &dma->dst};
  }
  if (auto* fill = std::get_if<spec::FillCommand>(&command.body)) {
    return {&fill->dst};
  }
  return {};
}

}  // namespace

void CommandSink::set_moving(Command& command) {
  int taken = 0;  // register of the operand in front
  const size_t count = operands_of(command).size();
  for (size_t i = 0; i < count; ++i) {
    const spec::Addr operand = *operands_of(command)[i];
    const Held held{std::max(operand.reg, operand.slot_reg), operand.slot_reg != 0};
    if (held.number < MovingAddresses::kFirst) {
      continue;
    }
    Command alone = command;  // ranges of operands with a register are not listed
    alone.windows.clear();
    for (size_t j = 0; j < count; ++j) {
      operands_of(alone)[j]->slot_reg = 0;
      operands_of(alone)[j]->reg = i == j ? 0 : 1;
    }
    for (const MemRange& range : memory_ranges(listing, alone)) {
      add_windows(range, held, command.windows);
    }
    taken = moving_register(held, taken);
    spec::Addr& own = *operands_of(command)[i];
    (held.slot ? own.slot_reg : own.reg) = static_cast<uint8_t>(taken);
  }
}

// What the command may touch in all iterations.
void CommandSink::add_windows(MemRange range, const Held& held, std::vector<MemRange>& out) const {
  if (!held.slot) {
    out.push_back(window_of(range, moving_.at(held.number)));
    return;
  }
  std::vector<int> slots = moving_.table(held.number).slots;
  std::ranges::sort(slots);
  const auto again = std::ranges::unique(slots);
  slots.erase(again.begin(), again.end());
  const int first = range.slot;
  for (const int slot : slots) {
    range.slot = first + slot;
    out.push_back(range);
  }
}

// A register other than `taken` that holds the address where the program is. What it holds is
// forgotten at labels, and where others take the register.
int CommandSink::moving_register(const Held& held, int taken) {
  held_.resize(kMovingRegisters.size());
  const auto known = std::ranges::find(held_, held);
  if (known != held_.end()) {
    return kMovingRegisters[static_cast<size_t>(known - held_.begin())];
  }
  do {
    next_held_ = (next_held_ + 1) % held_.size();
  } while (kMovingRegisters[next_held_] == taken);
  const int reg = kMovingRegisters[next_held_];
  const auto load = [&](int at, int64_t smem) {
    insn(spec::ScalarOp::kLds32, reg, at, 0, static_cast<int32_t>(smem));
  };
  if (held.slot) {
    const SlotTable& table = moving_.table(held.number);
    load(0, table.counter_smem);
    insn(spec::ScalarOp::kShli, reg, reg, 0, 2);
    load(reg, table.smem);
  } else {
    const MovingAddress& moving = moving_.at(held.number);
    load(0, moving.counter_smem);
    load_immediate(kLimitRegister, moving.stride);
    insn(spec::ScalarOp::kMul, reg, reg, kLimitRegister, 0);
  }
  held_[next_held_] = held;
  return reg;
}

void CommandSink::write_tables() {
  for (; tables_written_ < moving_.tables().size(); ++tables_written_) {
    const SlotTable& table = moving_.tables()[tables_written_];
    for (size_t i = 0; i < table.slots.size(); ++i) {
      load_immediate(kScalarRegister, table.slots[i]);
      insn(spec::ScalarOp::kSts32, 0, 0, kScalarRegister,
           static_cast<int32_t>(table.smem + 4 * static_cast<int64_t>(i)));
    }
  }
}

void CommandSink::insn(spec::ScalarOp op, int rd, int rs1, int rs2, int32_t imm) {
  listing.append(op, rd, rs1, rs2, imm);
  const auto reg = std::ranges::find(kMovingRegisters, rd);
  if (const auto at = static_cast<size_t>(reg - kMovingRegisters.begin()); at < held_.size()) {
    held_[at] = {};
  }
}

void CommandSink::load_immediate(int reg, int64_t value) {
  insn(spec::ScalarOp::kLi, reg, 0, 0, static_cast<int32_t>(value));
  if (value != static_cast<int32_t>(value)) {
    insn(spec::ScalarOp::kLih, reg, 0, 0, static_cast<int32_t>(value >> 32));
  }
}

void CommandSink::wrap(int reg, Elem elem) {
  const int shift = unused_bits(elem);
  if (shift == 0) {
    return;
  }
  insn(spec::ScalarOp::kShli, reg, reg, 0, shift);
  insn(is_signed(elem) ? spec::ScalarOp::kSari : spec::ScalarOp::kShri, reg, reg, 0, shift);
}

void CommandSink::control(Control::Kind kind, int label, int64_t trips) {
  Control c;
  held_.clear();
  c.kind = kind;
  c.label = label;
  c.trips = trips;
  listing.append(c);
}

void CommandSink::branch(spec::ScalarOp op, int rs1, int rs2, int label) {
  Control c;
  c.kind = Control::Kind::kBranch;
  c.label = label;
  c.insn = {static_cast<uint8_t>(op), 0, static_cast<uint8_t>(rs1), static_cast<uint8_t>(rs2), 0};
  listing.append(c);
}

void CommandSink::tight(Control::Kind kind, int label, spec::ScalarInsn insn) {
  Control c;
  held_.clear();
  c.kind = kind;
  c.label = label;
  c.insn = insn;
  c.tight = true;
  listing.append(c);
}

}  // namespace tpu::compiler
