// Decoding of VPU programs: every field is checked against the form of its operation.
#include "vpu/vpu_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

namespace tpu::model {
namespace {

using spec::VpuInsn;
using spec::VpuOp;

std::string where(int section, size_t position, const VpuInsn& insn) {
  const std::string_view name = insn.op >= 1 && insn.op <= spec::kVpuOps.size()
                                    ? spec::kVpuOps[insn.op - 1u].name
                                    : std::string_view("?");
  return fmt::format("VPU program: {}[{}] ({})", kVpuSectionNames[static_cast<size_t>(section)],
                     position, name);
}

template <typename Visit>  // visit(register) for each register that the instruction reads
void for_each_source(const VpuInsn& insn, const Visit& visit) {
  const VpuForm form = vpu_form(static_cast<VpuOp>(insn.op));
  if (form.rs1) {
    visit(insn.rs1);
  }
  if (form.rs2) {
    visit(insn.rs2);
  }
  if (form.rs3) {
    visit(static_cast<uint8_t>(insn.imm & 0xffu));
  }
}

void check_limit(uint32_t value, size_t count, std::string_view what, const std::string& place) {
  if (value >= count) {
    throw VpuError(
        fmt::format("{}: invalid {} {}: expected 0 to {}", place, what, value, count - 1));
  }
}

}  // namespace

VpuForm vpu_form(VpuOp op) {
  VpuForm result;
  std::string_view form = spec::kVpuOps[static_cast<size_t>(op) - 1].form;
  while (!form.empty()) {
    const size_t comma = std::min(form.find(','), form.size());
    const std::string_view field = form.substr(0, comma);
    form.remove_prefix(std::min(comma + 1, form.size()));
    result.rd |= field == "rd";
    result.rs1 |= field == "rs1";
    result.rs2 |= field == "rs2";
    result.rs3 |= field == "rs3";
    result.access |= field == "a";
    result.compare |= field == "c";
    result.reduce |= field == "r";
    result.mode |= field == "m";
  }
  return result;
}

VpuProgram VpuProgram::decode(std::span<const std::byte> code, uint32_t offset) {
  if (offset % 8 != 0) {
    throw VpuError(fmt::format("VPU program: offset {:#x} is not a multiple of 8", offset));
  }
  spec::VpuProgramHeader header;
  if (offset > code.size() || code.size() - offset < sizeof header) {
    throw VpuError(fmt::format("VPU program: its header at {:#x} is outside of the code ({} bytes)",
                               offset, code.size()));
  }
  std::memcpy(&header, code.data() + offset, sizeof header);
  if (header.registers > kVpuRegisters) {
    throw VpuError(fmt::format("VPU program: the header has {} registers: expected at most {}",
                               header.registers, kVpuRegisters));
  }
  if (header.reserved[0] != 0 || header.reserved[1] != 0) {
    throw VpuError("VPU program: reserved header fields are not zero");
  }
  VpuProgram program;
  program.registers_ = header.registers;
  size_t total = 0;
  for (size_t i = 0; i < kVpuSections; ++i) {
    total += header.section[i];
    program.start_[i + 1] = total;
  }
  const size_t available = (code.size() - offset - sizeof header) / sizeof(VpuInsn);
  if (total > available) {
    throw VpuError(fmt::format(
        "VPU program at {:#x}: the header has {} instructions, but the code ends after {}", offset,
        total, available));
  }
  program.insns_.resize(total);
  if (total != 0) {
    std::memcpy(program.insns_.data(), code.data() + offset + sizeof header,
                total * sizeof(VpuInsn));
  }
  for (int section = 0; section < kVpuSections; ++section) {
    size_t position = 0;
    for (const VpuInsn& insn : program.section(section)) {
      program.decode_insn(insn, section, position++);
    }
  }
  program.analyse_registers();
  return program;
}

void VpuProgram::decode_insn(const VpuInsn& insn, int section, size_t position) {
  const std::string place = where(section, position, insn);
  if (insn.op < 1 || insn.op > spec::kVpuOps.size()) {
    throw VpuError(fmt::format("{}: invalid opcode {}: expected 1 to {}", place, insn.op,
                               spec::kVpuOps.size()));
  }
  const auto op = static_cast<VpuOp>(insn.op);
  const VpuForm form = vpu_form(op);
  const auto registers = static_cast<size_t>(registers_);
  const auto check_register = [&](uint8_t number) {
    if (number >= registers) {
      throw VpuError(
          fmt::format("{}: invalid register r{}: the header has {} registers, from r0 on", place,
                      number, registers));
    }
  };
  if (form.rd) {
    check_register(insn.rd);
  }
  for_each_source(insn, check_register);
  if (form.mode) {
    check_limit(insn.rs2, spec::kVpuStoreModeCount, "store mode", place);
  }
  if (form.compare) {
    check_limit(insn.imm, spec::kVpuCompareCount, "comparison", place);
  }
  if (form.reduce) {
    check_limit(insn.imm, spec::kVpuReduceCount, "reduction", place);
  }
  if (op == VpuOp::kScalar) {
    check_limit(insn.imm, kVpuScalars, "scalar", place);
  }
  if (form.access) {
    check_limit(insn.imm, kVpuAccesses, "access", place);
    accesses_ = std::max(accesses_, static_cast<int>(insn.imm) + 1);
  }
  op_seen_[insn.op] = true;
}

// The first pass through all loops executes the sections in program order, so a read with no write
// before it in that order has no value.
void VpuProgram::analyse_registers() {
  uint32_t defined = 0;
  for (int s = 0; s < kVpuSections; ++s) {
    const auto index = static_cast<size_t>(s);
    size_t position = 0;
    for (const VpuInsn& insn : section(s)) {
      for_each_source(insn, [&](uint8_t number) {
        const uint32_t bit = 1u << number;
        if ((defined & bit) == 0) {
          throw VpuError(fmt::format("{}: register r{} is read before it is written",
                                     where(s, position, insn), number));
        }
        exposed_[index] |= bit & ~written_[index];
      });
      if (vpu_form(static_cast<VpuOp>(insn.op)).rd) {
        written_[index] |= 1u << insn.rd;
        defined |= 1u << insn.rd;
      }
      ++position;
    }
  }
}

bool VpuProgram::section_has_op(int index, VpuOp op) const {
  return std::ranges::any_of(
      section(index), [op](const VpuInsn& insn) { return static_cast<VpuOp>(insn.op) == op; });
}

uint32_t VpuProgram::exposed() const {
  return std::accumulate(exposed_.begin(), exposed_.end(), uint32_t{0}, std::bit_or<>());
}

bool VpuProgram::section_is_local(int index) const {
  return (written_[static_cast<size_t>(index)] & exposed()) == 0;
}

bool VpuProgram::iterations_independent(int loop) const {
  uint32_t written = 0;
  uint32_t carried = 0;
  for (int s = 0; s < kVpuSections; ++s) {
    const auto index = static_cast<size_t>(s);
    if (kVpuSectionDepth[index] > loop) {
      carried |= exposed_[index] & ~written;
      written |= written_[index];
    } else if ((s > static_cast<int>(VpuSection::kBody) && !section(s).empty()) ||
               section_has_op(s, VpuOp::kStore)) {
      return false;
    }
  }
  return (carried & written) == 0;
}

}  // namespace tpu::model
