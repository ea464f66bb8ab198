// Decisions about registers: constants, loads that need no copy, results that go straight to
// memory.
#include "vpu/vpu_steps.hpp"

#include <algorithm>
#include <cstdlib>

namespace tpu::model {
namespace {

using spec::VpuInsn;
using spec::VpuOp;

constexpr int64_t kRowBytes = kVpuLanes * int64_t{4};
// Blocks of a section that are worth a look for runs: it costs about as much as a block.
constexpr uint64_t kFewestFusedBlocks = 3;
constexpr size_t kOps = std::size(spec::kVpuOps) + 1;

// The forms of all operations: reading them from text costs more than a small kernel.
const VpuForm& form_of(const VpuInsn& insn) {
  static const std::array<VpuForm, kOps> forms = [] {
    std::array<VpuForm, kOps> all;
    for (size_t op = 1; op < kOps; ++op) {
      all[op] = vpu_form(static_cast<VpuOp>(op));
    }
    return all;
  }();
  return forms[insn.op];
}

bool is_memory(const VpuInsn& insn) {
  return is_op(insn, VpuOp::kLoad) || is_op(insn, VpuOp::kStore);
}

bool is_constant(const VpuInsn& insn) {
  return is_op(insn, VpuOp::kImm) || is_op(insn, VpuOp::kScalar);
}

bool reads(const VpuInsn& insn, uint8_t number) {
  const VpuForm& form = form_of(insn);
  return (form.rs1 && insn.rs1 == number) || (form.rs2 && insn.rs2 == number) ||
         (form.rs3 && (insn.imm & 0xffu) == number);
}

bool writes(const VpuInsn& insn, uint8_t number) { return form_of(insn).rd && insn.rd == number; }

// Vectors of lanes in, vectors of the same lanes out, rows at any pitch.
bool is_lanewise(const VpuInsn& insn) {
  switch (static_cast<VpuOp>(insn.op)) {
    case VpuOp::kLoad:
    case VpuOp::kStore:
    case VpuOp::kIndex:
    case VpuOp::kScalar:
    case VpuOp::kImm:
    case VpuOp::kMaskid:
    case VpuOp::kLred:
    case VpuOp::kSred:
    case VpuOp::kRemF:
    case VpuOp::kDivS:
    case VpuOp::kDivU:
    case VpuOp::kRemS:
    case VpuOp::kRemU:
    case VpuOp::kPowS:
    case VpuOp::kPowU:
      return false;
    default:
      return true;
  }
}

// Position after the last instruction that sees what insns[at] writes into `number`.
size_t end_of_value(std::span<const VpuInsn> insns, size_t at, uint8_t number) {
  size_t end = at + 1;
  for (size_t i = at + 1; i < insns.size(); ++i) {
    end = reads(insns[i], number) ? i + 1 : end;
    if (writes(insns[i], number)) {
      break;
    }
  }
  return end;
}

}  // namespace

void VpuSteps::make(const VpuKernel& kernel, const VpuOpTable& table, int rows) {
  rows_ = rows;
  steps_.clear();
  splats_.clear();
  constants_.clear();
  fused_.clear();
  const VpuProgram& program = *kernel.program_;
  for (int s = 0; s < kVpuSections; ++s) {
    const Insns insns = program.section(s);
    sections_[static_cast<size_t>(s)] = {steps_.size(), insns.size()};
    for (const VpuInsn& insn : insns) {
      const VpuForm& form = form_of(insn);
      VpuStep step;
      step.insn = insn;
      step.function = table.functions[insn.op];
      step.writes = form.rd;
      step.operand = form.access;
      step.rs1 = form.rs1 ? insn.rs1 : step.rs1;
      step.rs2 = form.rs2 ? insn.rs2 : step.rs2;
      step.rs3 = form.rs3 ? static_cast<uint8_t>(insn.imm & 0xffu) : step.rs3;
      steps_.push_back(step);
    }
  }
  find_overlaps(kernel);
  std::vector<bool> dropped(steps_.size(), false);
  find_splats(kernel, table, dropped);
  always_.fill(kNone);
  for (const VpuInsn& insn : constants_) {
    always_[insn.rd] = static_cast<int>(splats_.size());
    splats_.emplace_back().words.fill(constant_word(kernel, insn));
  }
  size_t kept = 0;
  for (int s = 0; s < kVpuSections; ++s) {
    Section& section = sections_[static_cast<size_t>(s)];
    const std::span<VpuStep> steps = std::span(steps_).subspan(section.first, section.count);
    if (program.section_is_local(s)) {
      find_loads(kernel, program.section(s), steps);
      find_stores(kernel, program.section(s), steps);
    }
    const size_t first = kept;
    for (size_t i = 0; i < steps.size(); ++i) {
      if (!dropped[section.first + i]) {
        steps_[kept++] = steps[i];
      }
    }
    section = {first, kept - first};
    if (table.fused != FusedIsa::kNone && kernel.executions(s) >= kFewestFusedBlocks) {
      fuse(kernel, table.fused, section, program.exposed());
    }
  }
  steps_.resize(kept);
}

uint32_t VpuSteps::constant_word(const VpuKernel& kernel, const VpuInsn& insn) {
  return is_op(insn, VpuOp::kScalar) ? kernel.scalars_[insn.imm] : insn.imm;
}

void VpuSteps::find_overlaps(const VpuKernel& kernel) {
  overlaps_.fill(0);
  const std::vector<VpuFootprint> prints = kernel.footprints();
  for (const VpuFootprint& a : prints) {
    for (const VpuFootprint& b : prints) {
      if (a.begin < b.end && b.begin < a.end) {
        overlaps_[static_cast<size_t>(a.access)] |= uint64_t{1} << b.access;
      }
    }
  }
}

// For each step the constants that it reads as rs1 and rs2 (steps, or none), and which instructions
// make known constants. One that is written once keeps its register for the whole run; others, of
// sections whose registers stay inside, are known between a write and the next.
void VpuSteps::trace_constants(const VpuProgram& program, Constants& all) const {
  std::array<int, kVpuRegisters> writers{}, only{};
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].writes) {
      ++writers[steps_[i].insn.rd];
      only[steps_[i].insn.rd] = is_constant(steps_[i].insn) ? static_cast<int>(i) : kNone;
    }
  }
  std::array<int, kVpuRegisters> always{};
  for (size_t r = 0; r < always.size(); ++r) {
    always[r] = writers[r] == 1 ? only[r] : kNone;
  }
  all.made.assign(steps_.size(), Made::kNo);
  all.in_register.assign(steps_.size(), false);
  all.read.assign(steps_.size(), {kNone, kNone});
  for (int s = 0; s < kVpuSections; ++s) {
    const Section& section = sections_[static_cast<size_t>(s)];
    const bool local = program.section_is_local(s);
    std::array<int, kVpuRegisters> last = always;
    for (size_t i = section.first; i < section.first + section.count; ++i) {
      const VpuStep& step = steps_[i];
      all.read[i] = {step.rs1 < kVpuRegisters ? last[step.rs1] : kNone,
                     step.rs2 < kVpuRegisters ? last[step.rs2] : kNone};
      if (step.rs3 < kVpuRegisters && last[step.rs3] != kNone) {
        all.in_register[static_cast<size_t>(last[step.rs3])] = true;
      }
      if (!step.writes) {
        continue;
      }
      const bool once = always[step.insn.rd] != kNone;
      const bool known = is_constant(step.insn) && (local || once);
      last[step.insn.rd] = known ? static_cast<int>(i) : kNone;
      all.made[i] = !known ? Made::kNo : once ? Made::kOnce : Made::kHere;
    }
  }
}

// Constants whose readers all take them as one vector need no register. Marks the steps that are
// not executed.
void VpuSteps::find_splats(const VpuKernel& kernel, const VpuOpTable& table,
                           std::vector<bool>& dropped) {
  Constants all;
  trace_constants(*kernel.program_, all);
  const auto free = [&](int constant) {
    return constant != kNone && !all.in_register[static_cast<size_t>(constant)];
  };
  for (size_t i = 0; i < steps_.size(); ++i) {
    const auto [a, b] = all.read[i];
    const uint8_t op = steps_[i].insn.op;
    if (b != kNone && table.splat2[op] == nullptr) {
      all.in_register[static_cast<size_t>(b)] = true;
    }
    if (a != kNone && (table.splat1[op] == nullptr || free(b))) {
      all.in_register[static_cast<size_t>(a)] = true;
    }
  }
  std::vector<int> splat(steps_.size(), kNone);
  for (size_t i = 0; i < steps_.size(); ++i) {
    const VpuInsn& insn = steps_[i].insn;
    if (all.made[i] == Made::kNo) {
      continue;
    }
    if (free(static_cast<int>(i))) {
      splat[i] = static_cast<int>(splats_.size());
      splats_.emplace_back().words.fill(constant_word(kernel, insn));
      dropped[i] = true;
    } else if (all.made[i] == Made::kOnce) {
      constants_.push_back(insn);
      dropped[i] = true;
    }
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    VpuStep& step = steps_[i];
    const auto [a, b] = all.read[i];
    if (free(b)) {
      step.splat2 = splat[static_cast<size_t>(b)];
      step.rs2 = kVpuRegisters;
      step.function = table.splat2[step.insn.op];
    } else if (free(a)) {
      step.splat1 = splat[static_cast<size_t>(a)];
      step.rs1 = kVpuRegisters;
      step.function = table.splat1[step.insn.op];
    }
  }
}

bool VpuSteps::dense_words(const VpuKernel& kernel, uint32_t access) const {
  const VpuKernel::Operand& operand = kernel.operands_[access];
  return operand.access.lane == 4 && vpu_element_bytes(operand.access.type) == 4;
}

// Rows lie as in the register file.
bool VpuSteps::plain_rows(const VpuKernel& kernel, uint32_t access) const {
  return kernel.command_.flat() || rows_ == 1 || kernel.operands_[access].access.sub == kRowBytes;
}

void VpuSteps::find_loads(const VpuKernel& kernel, Insns insns, std::span<VpuStep> steps) const {
  for (size_t i = 0; i < insns.size(); ++i) {
    steps[i].in_place = is_op(insns[i], VpuOp::kLoad) && can_stay(kernel, insns, i);
  }
}

// True when the register that insns[at] loads may be the memory itself until it is written again:
// whole words in order, and no store that could change them while they are read.
bool VpuSteps::can_stay(const VpuKernel& kernel, Insns insns, size_t at) const {
  const VpuInsn& load = insns[at];
  if (!dense_words(kernel, load.imm)) {
    return false;
  }
  const bool plain = plain_rows(kernel, load.imm);
  const size_t end = end_of_value(insns, at, load.rd);
  for (size_t i = at + 1; i < end; ++i) {
    if (is_op(insns[i], VpuOp::kStore) && overlap(load.imm, insns[i].imm)) {
      return false;
    }
    if (!plain && reads(insns[i], load.rd) && !is_lanewise(insns[i])) {
      return false;
    }
  }
  return true;
}

void VpuSteps::find_stores(const VpuKernel& kernel, Insns insns, std::span<VpuStep> steps) const {
  for (size_t i = 0; i < insns.size(); ++i) {
    const VpuInsn& store = insns[i];
    if (!is_op(store, VpuOp::kStore) ||
        static_cast<spec::VpuStoreMode>(store.rs2) != spec::VpuStoreMode::kAll ||
        !dense_words(kernel, store.imm)) {
      continue;
    }
    size_t maker = i;
    while (maker > 0 && !writes(insns[maker - 1], store.rs1)) {
      --maker;
    }
    if (maker == 0) {
      continue;  // made by another section
    }
    --maker;
    if (is_lanewise(insns[maker]) && steps[maker].target < 0 &&
        can_write(kernel, insns, steps, maker, i)) {
      steps[maker].target = static_cast<int>(store.imm);
      steps[i].done = true;
    }
  }
}

// True when the result of insns[maker] may be written at once to where insns[store] puts it, and
// its register be that memory until it is written again: nobody looks at or changes these bytes in
// between. Operands that are memory themselves must not be read later than the write; the maker may
// read those that lie at the very place.
bool VpuSteps::can_write(const VpuKernel& kernel, Insns insns, std::span<const VpuStep> steps,
                         size_t maker, size_t store) const {
  const uint32_t to = insns[store].imm;
  const VpuKernel::Operand& operand = kernel.operands_[to];
  const bool plain = plain_rows(kernel, to);
  if (!plain && std::abs(int64_t{operand.access.sub}) < kRowBytes) {
    return false;  // rows share bytes
  }
  const size_t end = std::max(store + 1, end_of_value(insns, maker, insns[store].rs1));
  for (size_t i = maker + 1; i < end; ++i) {
    if (i == store) {
      continue;
    }
    const bool seen = is_op(insns[i], VpuOp::kStore) || (is_memory(insns[i]) && i < store);
    if (seen && overlap(to, insns[i].imm)) {
      return false;
    }
    if (!plain && reads(insns[i], insns[store].rs1) && !is_lanewise(insns[i])) {
      return false;
    }
  }
  const auto same_place = [&](uint32_t access) {
    const VpuKernel::Operand& other = kernel.operands_[access];
    return other.base == operand.base && other.access.loop == operand.access.loop &&
           other.access.sub == operand.access.sub;
  };
  for (size_t i = 0; i < store; ++i) {
    if (steps[i].target >= 0 && overlap(to, static_cast<uint32_t>(steps[i].target))) {
      return false;
    }
    if (!steps[i].in_place || !overlap(to, insns[i].imm)) {
      continue;
    }
    const size_t last = end_of_value(insns, i, insns[i].rd) - 1;
    if (last > maker || (last == maker && !same_place(insns[i].imm))) {
      return false;
    }
  }
  return true;
}

}  // namespace tpu::model
