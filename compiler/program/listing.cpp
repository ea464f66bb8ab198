// Listing container and the byte ranges of commands.
#include "program/listing.hpp"

#include <algorithm>
#include <array>

#include "command/cost.hpp"
#include "command/operands.hpp"
#include "command/vpu_footprint.hpp"

namespace tpu::compiler {

using spec::Space;

bool ranges_overlap(const MemRange& a, const MemRange& b) {
  if (a.space != b.space || a.slot != b.slot || a.lo >= b.hi || b.lo >= a.hi) {
    return false;
  }
  if (a.pitch > 0 && a.pitch == b.pitch) {
    const int64_t p = a.pitch;
    const int64_t shift = ((b.lo - a.lo) % p + p) % p;  // start of b's window, seen from a's
    return shift < a.width || shift + b.width > p;
  }
  return true;
}

spec::CommandHeader& Command::head() {
  return std::visit([](auto& c) -> spec::CommandHeader& { return c.head; }, body);
}
const spec::CommandHeader& Command::head() const {
  return std::visit([](const auto& c) -> const spec::CommandHeader& { return c.head; }, body);
}

int Listing::add_program(VpuProgram program) {
  const auto it = std::find(programs.begin(), programs.end(), program);
  if (it != programs.end()) {
    return static_cast<int>(it - programs.begin());
  }
  programs.push_back(std::move(program));
  return static_cast<int>(programs.size()) - 1;
}

void Listing::check_room() const {
  if (items.size() >= kMaxItems) {
    throw ListingFull{};
  }
}

int Listing::append(Command command) {
  check_room();
  items.emplace_back(std::move(command));
  return static_cast<int>(items.size()) - 1;
}

void Listing::append(spec::ScalarOp op, int rd, int rs1, int rs2, int32_t imm) {
  check_room();
  items.emplace_back(spec::ScalarInsn{static_cast<uint8_t>(op), static_cast<uint8_t>(rd),
                                      static_cast<uint8_t>(rs1), static_cast<uint8_t>(rs2), imm});
}

void Listing::append(Control control) {
  check_room();
  items.emplace_back(control);
}

static spec::Addr addr_of(Space space, int64_t offset) {
  spec::Addr a{};
  a.space = static_cast<uint8_t>(space);
  a.offset = offset;
  return a;
}

spec::Addr smem_addr(int64_t offset) { return addr_of(Space::kSmem, offset); }
spec::Addr vmem_addr(int64_t offset) { return addr_of(Space::kVmem, offset); }

spec::Wait taking_wait(int semaphore) {
  return {static_cast<uint8_t>(semaphore), spec::Wait::kValid | spec::Wait::kTake, 1};
}
spec::Signal own_signal(int semaphore) {
  return {static_cast<uint8_t>(semaphore), spec::Signal::kValid, 1, 0};
}
spec::Signal remote_signal(int semaphore, int peer_reg) {
  return {static_cast<uint8_t>(semaphore), spec::Signal::kValid | spec::Signal::kRemote, 1,
          static_cast<uint8_t>(peer_reg)};
}

spec::VpuKernelCommand flat_vpu_kernel(int64_t count, uint32_t op_id) {
  auto c = make_command<spec::VpuKernelCommand>(spec::Opcode::kVpuKernel, spec::Queue::kVpu, op_id);
  c.head.flags = c.kFlat;
  c.row_loop = 255;
  c.col_loop = 3;
  c.loops = {1, 1, 1, static_cast<uint32_t>((count + 1023) / 1024)};
  c.rows = 1;
  c.cols = static_cast<uint32_t>(count);
  return c;
}

spec::Addr hbm_addr(int slot, int64_t offset) {
  spec::Addr a = addr_of(Space::kHbm, offset);
  a.slot = static_cast<uint16_t>(slot);
  return a;
}

namespace {

// The tightest range that MemRange can say. Windows stand in for operands whose slot or address
// depends on a register; what another core holds is not here.
void add(const spec::CommandOperand& operand, std::vector<MemRange>& out) {
  MemRange range;
  range.space = static_cast<Space>(operand.address.space);
  if (operand.address.reg != 0 || operand.address.slot_reg != 0 || operand.remote ||
      range.space == Space::kNone) {
    return;
  }
  range.slot = range.space == Space::kHbm ? operand.address.slot : 0;
  range.lo = operand.address.offset;
  std::vector<spec::StridePattern::Level> levels;
  for (auto level : operand.bytes.levels()) {
    if (level.stride < 0) {
      range.lo += (level.count - 1) * level.stride;
      level.stride = -level.stride;
    }
    if (level.stride != 0) {
      levels.push_back(level);
    }
  }
  std::ranges::sort(levels, {}, &spec::StridePattern::Level::stride);
  int64_t width = operand.bytes.run();
  auto rest = levels.begin();
  for (; rest != levels.end() && rest->stride <= width; ++rest) {
    width += (rest->count - 1) * rest->stride;
  }
  if (rest != levels.end() && std::all_of(rest, levels.end(), [&](const auto& l) {
        return l.stride % rest->stride == 0;
      })) {
    range.pitch = rest->stride;  // all outer strides are multiples of this one
    range.width = width;
  }
  range.hi = range.lo + width;
  for (; rest != levels.end(); ++rest) {
    range.hi += (rest->count - 1) * rest->stride;
  }
  range.write = operand.write;
  out.push_back(range);
}

void add_all(const Listing&, const Command&, const spec::NopCommand&, std::vector<MemRange>&) {}

void add_all(const Listing& l, const Command& cmd, const spec::VpuKernelCommand& c,
             std::vector<MemRange>& out) {
  for (const spec::VpuInsn& insn : l.programs[static_cast<size_t>(cmd.program)].code) {
    if (spec::is_vpu_memory_op(insn)) {
      add(spec::operand(c, cmd.accesses[insn.imm], insn), out);
    }
  }
}

// What is read first, then what is written.
template <typename C>
void add_all(const Listing&, const Command&, const C& c, std::vector<MemRange>& out) {
  const auto operands = spec::operands(c);
  for (const bool write : {false, true}) {
    for (const spec::CommandOperand& operand : operands) {
      if (operand.write == write) {
        add(operand, out);
      }
    }
  }
}

}  // namespace

std::vector<MemRange> memory_ranges(const Listing& listing, const Command& command) {
  std::vector<MemRange> out = command.windows;
  std::visit(
      [&](const auto& c) {
        if (!spec::is_empty(c)) {
          add_all(listing, command, c, out);
        }
      },
      command.body);
  return out;
}

}  // namespace tpu::compiler
