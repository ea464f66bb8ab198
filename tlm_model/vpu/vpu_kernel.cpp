// Checks and cost of vpu_kernel commands; vpu_run.cpp computes them.
#include "vpu/vpu_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace tpu::model {
namespace {

using spec::Space;
using spec::VpuInsn;
using spec::VpuOp;

constexpr uint8_t kNoLoop = 255;
constexpr uint64_t kMaxBlocks = uint64_t{1} << 30;
constexpr int64_t kMaxBase = int64_t{1} << 48;

void check_loop(uint8_t number, std::string_view name) {
  if (number != kNoLoop && number >= kVpuLoops) {
    throw VpuError(
        fmt::format("vpu_kernel: invalid {} {}: expected 0 to 3, or 255 for none", name, number));
  }
}

uint32_t blocks_of(uint32_t total, uint32_t block) { return (total + block - 1) / block; }

}  // namespace

VpuKernel::VpuKernel(const VpuProgram& program, const spec::VpuKernelCommand& command,
                     std::span<const spec::VpuAccess> accesses, std::span<const int64_t> bases,
                     const std::array<uint32_t, kVpuScalars>& scalars)
    : program_(&program), command_(command), scalars_(scalars) {
  check_loop(command.row_loop, "row_loop");
  check_loop(command.col_loop, "col_loop");
  if (accesses.size() > kVpuAccesses || accesses.size() != command.accesses ||
      bases.size() != accesses.size()) {
    throw VpuError(
        fmt::format("vpu_kernel: expected {} accesses as in the command, found {} (at most {})",
                    command.accesses, accesses.size(), kVpuAccesses));
  }
  if (program.accesses() > command.accesses) {
    throw VpuError(
        fmt::format("vpu_kernel: the program uses access {}, but the command has only {} accesses",
                    program.accesses() - 1, command.accesses));
  }
  operands_.reserve(accesses.size());
  for (size_t i = 0; i < accesses.size(); ++i) {
    const spec::VpuAccess& access = accesses[i];
    if (access.addr.space >= spec::kSpaceCount || access.type >= spec::kElemCount) {
      throw VpuError(
          fmt::format("vpu_kernel: access {}: expected a space below {} and an element type below "
                      "{}, found {} and {}",
                      i, spec::kSpaceCount, spec::kElemCount, access.addr.space, access.type));
    }
    operands_.push_back({access, bases[i]});
  }
}

bool VpuKernel::empty() const { return spec::is_empty(command_); }

std::string VpuKernel::check(uint64_t vmem_bytes) const {
  if (empty()) {
    return {};
  }
  if (std::string text = check_loops(); !text.empty()) {
    return text;
  }
  for (int s = 0; s < kVpuSections; ++s) {
    for (const VpuInsn& insn : program_->section(s)) {
      if (!vpu_form(static_cast<VpuOp>(insn.op)).access) {
        continue;
      }
      if (std::string text = check_access(insn, s, vmem_bytes); !text.empty()) {
        return text;
      }
    }
  }
  return {};
}

std::string VpuKernel::check_loops() const {
  if (empty()) {
    return {};
  }
  uint64_t blocks = 1;
  for (const uint32_t count : command_.loops) {
    blocks *= count;
    if (blocks > kMaxBlocks) {
      return fmt::format("vpu_kernel: loops {}x{}x{}x{} exceed the limit of {} blocks",
                         command_.loops[0], command_.loops[1], command_.loops[2], command_.loops[3],
                         kMaxBlocks);
    }
  }
  const uint8_t row_loop = command_.row_loop, col_loop = command_.col_loop;
  if (row_loop != kNoLoop && row_loop == col_loop) {
    return fmt::format("vpu_kernel: row_loop and col_loop are both loop {}", row_loop);
  }
  if (command_.flat() && (row_loop != kNoLoop || command_.rows != 1)) {
    return fmt::format(
        "vpu_kernel: a flat kernel must have rows 1 and no row_loop, found rows {}, row_loop {}",
        command_.rows, row_loop);
  }
  const auto check_extent = [&](std::string_view name, uint32_t total, uint32_t block,
                                uint8_t loop) {
    const uint32_t needed = blocks_of(total, block);
    const uint32_t given = loop == kNoLoop ? 1 : command_.loops[loop];
    if (total > UINT32_MAX - block || needed != given) {
      return fmt::format("vpu_kernel: {} {} are {} blocks of {}, {} {}", total, name, needed, block,
                         loop == kNoLoop ? "without a loop only" : "the loop's count is", given);
    }
    return std::string();
  };
  std::string text = check_extent("rows", command_.rows, kVpuSublanes, row_loop);
  return !text.empty() ? text
                       : check_extent("columns", command_.cols,
                                      command_.flat() ? kVpuBlock : kVpuLanes, col_loop);
}

std::string VpuKernel::check_alignment(const Operand& operand) const {
  const int64_t bytes = vpu_element_bytes(operand.access.type);
  const auto bad = [bytes](int64_t value) { return value % bytes != 0; };
  if (bad(operand.base)) {
    return fmt::format("address {:#x} is not a multiple of {}", operand.base, bytes);
  }
  for (size_t d = 0; d < kVpuLoops; ++d) {
    if (command_.loops[d] > 1 && bad(operand.access.loop[d])) {
      return fmt::format("stride {} of loop {} is not a multiple of {}", operand.access.loop[d], d,
                         bytes);
    }
  }
  if ((command_.rows > 1 && bad(operand.access.sub)) ||
      (command_.cols > 1 && bad(operand.access.lane))) {
    return fmt::format("sublane stride {} or lane stride {} is not a multiple of {}",
                       operand.access.sub, operand.access.lane, bytes);
  }
  return {};
}

std::string VpuKernel::check_access(const VpuInsn& insn, int section, uint64_t vmem_bytes) const {
  const std::string text = access_problem(insn, section, vmem_bytes);
  return text.empty() ? text
                      : fmt::format("vpu_kernel: access {} ({} in {}): {}", insn.imm,
                                    spec::kVpuOps[insn.op - 1u].name,
                                    kVpuSectionNames[static_cast<size_t>(section)], text);
}

std::string VpuKernel::access_problem(const VpuInsn& insn, int section, uint64_t vmem_bytes) const {
  const Operand& operand = operands_[insn.imm];
  const std::string_view space = spec::kSpaceNames[static_cast<size_t>(operand.space())];
  if (!spec::is_vpu_memory_op(insn)) {
    return operand.space() == Space::kNone
               ? std::string()
               : fmt::format("an index must have space none, found {}", space);
  }
  if (operand.space() != Space::kVmem) {
    return fmt::format("operands must be in vmem, found {}; copy them by DMA first", space);
  }
  const int bytes = vpu_element_bytes(operand.access.type);
  if (bytes == 0) {
    return fmt::format("type {} is not supported; use two accesses of i32 with lane stride 8",
                       spec::kElemNames[operand.access.type]);
  }
  if (std::string text = check_alignment(operand); !text.empty()) {
    return text;
  }
  if (operand.base < -kMaxBase || operand.base > kMaxBase) {
    return fmt::format("address {:#x} is outside of VMEM", operand.base);
  }
  const spec::ByteExtent range = extent(insn, spec::vpu_loops_around(section));
  if (range.low < 0 || range.high > static_cast<int64_t>(vmem_bytes)) {
    return fmt::format("bytes [{}, {}) are outside of VMEM ({} bytes)", range.low, range.high,
                       vmem_bytes);
  }
  return {};
}

spec::ByteExtent VpuKernel::extent(const VpuInsn& insn, spec::VpuLoopMask loops) const {
  const Operand& operand = operands_[insn.imm];
  const spec::ByteExtent touched =
      spec::VpuFootprint(command_, operand.access, insn, loops).extent();
  return {operand.base + touched.low, operand.base + touched.high};
}

std::vector<VpuFootprint> VpuKernel::footprints_with(spec::VpuLoopMask loops) const {
  std::vector<VpuFootprint> result;
  for (int s = 0; s < kVpuSections; ++s) {
    for (const VpuInsn& insn : program_->section(s)) {
      if (spec::is_vpu_memory_op(insn)) {
        const spec::ByteExtent range = extent(insn, spec::vpu_loops_around(s) & loops);
        result.push_back(
            {range.low, range.high, spec::is_vpu_store(insn), static_cast<int>(insn.imm)});
      }
    }
  }
  return result;
}

std::vector<VpuFootprint> VpuKernel::footprints() const {
  return empty() ? std::vector<VpuFootprint>() : footprints_with(spec::kVpuAllLoops);
}

bool VpuKernel::loads_before_stores() const {
  struct Place {
    int section;
    const VpuInsn* insn;  // by address: in program order
    spec::ByteExtent bytes;
  };
  std::vector<Place> loads, stores;
  for (int s = 0; s < kVpuSections && !empty(); ++s) {
    for (const VpuInsn& insn : program_->section(s)) {
      if (spec::is_vpu_memory_op(insn)) {
        (spec::is_vpu_store(insn) ? stores : loads)
            .push_back({s, &insn, extent(insn, spec::vpu_loops_around(s))});
      }
    }
  }
  const auto overlap = [](const Place& a, const Place& b) {
    return a.bytes.low < b.bytes.high && b.bytes.low < a.bytes.high;
  };
  return std::ranges::all_of(stores, [&](const Place& store) {
    return std::ranges::all_of(loads, [&](const Place& load) {
      return !overlap(load, store) || (load.section == store.section && load.insn < store.insn &&
                                       goes_before(*load.insn, *store.insn, store.section));
    });
  });
}

// Both touch the same bytes in each turn of the section's loops, and other bytes in each.
bool VpuKernel::goes_before(const VpuInsn& load, const VpuInsn& store, int section) const {
  const Operand& from = operands_[load.imm];
  const Operand& to = operands_[store.imm];
  bool same = load.imm != store.imm && from.base == to.base && from.access.type == to.access.type &&
              from.access.sub == to.access.sub && from.access.lane == to.access.lane &&
              static_cast<spec::VpuStoreMode>(store.rs2) == spec::VpuStoreMode::kAll;
  for (size_t d = 0; d < static_cast<size_t>(kVpuSectionDepth[static_cast<size_t>(section)]); ++d) {
    same = same && (command_.loops[d] <= 1 || from.access.loop[d] == to.access.loop[d]);
  }
  const spec::VpuFootprint touched(command_, from.access, load, spec::vpu_loops_around(section));
  const auto& patterns = touched.patterns();
  for (size_t i = 0; same && i < patterns.size(); ++i) {
    same = !spec::repeats_bytes(patterns[i]);
    for (size_t j = 0; same && j < i; ++j) {  // full blocks and the last one of a row, say
      same = !spec::share_bytes(patterns[i], patterns[j]);
    }
  }
  return same;
}

void VpuKernel::for_each_pattern(
    const std::function<void(const spec::StridePattern& pattern, bool write, spec::Elem type)>&
        visit) const {
  for (int s = 0; s < kVpuSections && !empty(); ++s) {
    for (const VpuInsn& insn : program_->section(s)) {
      if (!spec::is_vpu_memory_op(insn)) {
        continue;
      }
      const Operand& operand = operands_[insn.imm];
      const spec::VpuFootprint touched(command_, operand.access, insn, spec::vpu_loops_around(s));
      for (const spec::StridePattern& pattern : touched.patterns()) {
        visit(pattern.at(operand.base + pattern.base()), spec::is_vpu_store(insn),
              static_cast<spec::Elem>(operand.access.type));
      }
    }
  }
}

int VpuKernel::split_loop() const {
  for (int d = 0; d < kVpuLoops; ++d) {
    if (command_.loops[static_cast<size_t>(d)] > 1) {
      return d;
    }
  }
  return kVpuLoops - 1;
}

uint64_t VpuKernel::split_count() const {
  return empty() ? 0 : command_.loops[static_cast<size_t>(split_loop())];
}

// Memory is independent when every store moves with the loop at least as far as what it may share
// with another access of one iteration.
bool VpuKernel::can_split() const {
  const int loop = split_loop();
  if (empty() || !program_->iterations_independent(loop)) {
    return false;
  }
  const std::vector<VpuFootprint> whole = footprints_with(spec::kVpuAllLoops);
  const std::vector<VpuFootprint> once = footprints_with(spec::kVpuAllLoops & ~(1u << loop));
  for (size_t i = 0; i < whole.size(); ++i) {
    if (!whole[i].write) {
      continue;
    }
    const int64_t step =
        operands_[static_cast<size_t>(whole[i].access)].access.loop[static_cast<size_t>(loop)];
    for (size_t j = 0; j < whole.size(); ++j) {
      if (whole[i].end <= whole[j].begin || whole[j].end <= whole[i].begin) {
        continue;
      }
      const int64_t other =
          operands_[static_cast<size_t>(whole[j].access)].access.loop[static_cast<size_t>(loop)];
      const int64_t reach =
          std::max(once[i].end, once[j].end) - std::min(once[i].begin, once[j].begin);
      if (other != step || reach > std::llabs(step)) {
        return false;
      }
    }
  }
  return true;
}

uint64_t VpuKernel::executions(int section) const {
  return spec::vpu_executions(command_, section);
}

uint64_t VpuKernel::lane_operations() const {
  uint64_t result = 0;
  for (int s = 0; s < kVpuSections; ++s) {
    result += executions(s) * program_->section(s).size() * kVpuBlock;
  }
  return result;
}

uint64_t VpuKernel::memory_bytes() const {
  uint64_t result = 0;
  for (int s = 0; s < kVpuSections; ++s) {
    uint64_t bytes = 0;  // of an execution
    for (const VpuInsn& insn : program_->section(s)) {
      if (spec::is_vpu_memory_op(insn)) {
        const Operand& operand = operands_[insn.imm];
        bytes += kVpuBlock * static_cast<uint64_t>(spec::vpu_element_bytes(operand.access.type));
      }
    }
    result += executions(s) * bytes;
  }
  return result;
}

}  // namespace tpu::model
