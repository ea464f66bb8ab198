// Checks and cost of vpu_kernel commands; vpu_run.cpp computes them.
#include "vpu/vpu_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace tpu::model {
namespace {

using spec::Elem;
using spec::Space;
using spec::VpuInsn;
using spec::VpuOp;
using spec::VpuStoreMode;

constexpr uint8_t kNoLoop = 255;
constexpr uint64_t kMaxBlocks = uint64_t{1} << 30;
constexpr int64_t kMaxBase = int64_t{1} << 48;

int decode_loop(uint8_t number, std::string_view name) {
  if (number == kNoLoop) {
    return -1;
  }
  if (number >= kVpuLoops) {
    throw VpuError(fmt::format("vpu_kernel: {} is {} (0..3, or 255 for none)", name, number));
  }
  return number;
}

bool is_memory_op(const VpuInsn& insn) {
  const auto op = static_cast<VpuOp>(insn.op);
  return op == VpuOp::kLoad || op == VpuOp::kStore;
}

bool first_sublane_only(const VpuInsn& insn) {
  const auto mode = static_cast<VpuStoreMode>(insn.rs2);
  return static_cast<VpuOp>(insn.op) == VpuOp::kStore &&
         (mode == VpuStoreMode::kSublane0 || mode == VpuStoreMode::kElement0);
}

bool first_lane_only(const VpuInsn& insn) {
  const auto mode = static_cast<VpuStoreMode>(insn.rs2);
  return static_cast<VpuOp>(insn.op) == VpuOp::kStore &&
         (mode == VpuStoreMode::kLane0 || mode == VpuStoreMode::kElement0);
}

uint32_t blocks_of(uint32_t total, uint32_t block) { return (total + block - 1) / block; }

}  // namespace

VpuKernel::VpuKernel(const VpuProgram& program, const spec::VpuKernelCommand& command,
                     std::span<const spec::VpuAccess> accesses, std::span<const int64_t> bases,
                     const std::array<uint32_t, kVpuScalars>& scalars)
    : program_(&program),
      loops_(command.loops),
      rows_(command.rows),
      cols_(command.cols),
      row_loop_(decode_loop(command.row_loop, "row_loop")),
      col_loop_(decode_loop(command.col_loop, "col_loop")),
      flat_(command.flat()),
      scalars_(scalars) {
  if (accesses.size() > kVpuMaxAccesses || accesses.size() != command.accesses ||
      bases.size() != accesses.size()) {
    throw VpuError(fmt::format("vpu_kernel: {} accesses given, {} in the command (at most {})",
                               accesses.size(), command.accesses, kVpuMaxAccesses));
  }
  if (program.accesses() > command.accesses) {
    throw VpuError(fmt::format("vpu_kernel: the program uses access {}, the command has {}",
                               program.accesses() - 1, command.accesses));
  }
  operands_.reserve(accesses.size());
  for (size_t i = 0; i < accesses.size(); ++i) {
    const spec::VpuAccess& access = accesses[i];
    if (access.addr.space >= spec::kSpaceCount || access.type >= spec::kElemCount) {
      throw VpuError(fmt::format("vpu_kernel: access {}: space {} or type {} does not exist", i,
                                 access.addr.space, access.type));
    }
    operands_.push_back({static_cast<Space>(access.addr.space),
                         access.type,
                         bases[i],
                         {access.loop[0], access.loop[1], access.loop[2], access.loop[3]},
                         access.sub,
                         access.lane});
  }
}

bool VpuKernel::empty() const {
  return rows_ == 0 || cols_ == 0 || std::ranges::find(loops_, 0u) != loops_.end();
}

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
  for (const uint32_t count : loops_) {
    blocks *= count;
    if (blocks > kMaxBlocks) {
      return fmt::format("vpu_kernel: loops {}x{}x{}x{} make more than {} blocks", loops_[0],
                         loops_[1], loops_[2], loops_[3], kMaxBlocks);
    }
  }
  if (row_loop_ >= 0 && row_loop_ == col_loop_) {
    return fmt::format("vpu_kernel: row_loop and col_loop are both loop {}", row_loop_);
  }
  if (flat_ && (row_loop_ >= 0 || rows_ != 1)) {
    return fmt::format(
        "vpu_kernel: a flat kernel has rows 1 and no row_loop (rows {}, row_loop {})", rows_,
        row_loop_ < 0 ? int{kNoLoop} : row_loop_);
  }
  const auto check_extent = [&](std::string_view name, uint32_t total, uint32_t block, int loop) {
    const uint32_t needed = blocks_of(total, block);
    const uint32_t given = loop < 0 ? 1 : loops_[static_cast<size_t>(loop)];
    if (total > UINT32_MAX - block || needed != given) {
      return fmt::format("vpu_kernel: {} {} are {} blocks of {}, {} {}", total, name, needed, block,
                         loop < 0 ? "without a loop only" : "the loop's count is", given);
    }
    return std::string();
  };
  if (std::string text = check_extent("rows", rows_, kVpuSublanes, row_loop_); !text.empty()) {
    return text;
  }
  return check_extent("columns", cols_, flat_ ? kVpuBlock : kVpuLanes, col_loop_);
}

std::string VpuKernel::check_alignment(const Operand& operand) const {
  const int64_t bytes = vpu_element_bytes(operand.type);
  const auto bad = [bytes](int64_t value) { return value % bytes != 0; };
  if (bad(operand.base)) {
    return fmt::format("address {:#x} is not a multiple of {}", operand.base, bytes);
  }
  for (size_t d = 0; d < kVpuLoops; ++d) {
    if (loops_[d] > 1 && bad(operand.loop[d])) {
      return fmt::format("stride {} of loop {} is not a multiple of {}", operand.loop[d], d, bytes);
    }
  }
  if ((rows_ > 1 && bad(operand.sub)) || (cols_ > 1 && bad(operand.lane))) {
    return fmt::format("sublane stride {} or lane stride {} is not a multiple of {}", operand.sub,
                       operand.lane, bytes);
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
  const std::string_view space = spec::kSpaceNames[static_cast<size_t>(operand.space)];
  if (!is_memory_op(insn)) {
    return operand.space == Space::kNone ? std::string()
                                         : fmt::format("an index has space none, not {}", space);
  }
  if (operand.space != Space::kVmem) {
    return fmt::format("operands lie in vmem, not in {}; copy them by DMA first", space);
  }
  const int bytes = vpu_element_bytes(operand.type);
  if (bytes == 0) {
    return fmt::format("type {}: use two accesses of i32 with lane stride 8",
                       spec::kElemNames[operand.type]);
  }
  if (std::string text = check_alignment(operand); !text.empty()) {
    return text;
  }
  if (operand.base < -kMaxBase || operand.base > kMaxBase) {
    return fmt::format("address {:#x} lies outside of VMEM", operand.base);
  }
  const Interval range = interval(insn, section, -1);
  if (range.low < 0 || range.high + bytes > static_cast<int64_t>(vmem_bytes)) {
    return fmt::format("bytes [{}, {}) lie outside of VMEM ({} bytes)", range.low,
                       range.high + bytes, vmem_bytes);
  }
  return {};
}

// Offsets along rows or columns: all full blocks together with the tail block of the walking loop.
VpuKernel::Interval VpuKernel::axis(const Operand& operand, int section, int loop, int block,
                                    uint32_t total, int64_t stride, Lanes touched,
                                    int fixed_loop) const {
  const auto lanes = [&](int64_t valid) {
    const int64_t last = (std::min<int64_t>(valid, touched.limit) - 1) / touched.every;
    const int64_t reach = last * touched.every * stride;
    return Interval{std::min<int64_t>(0, reach), std::max<int64_t>(0, reach)};
  };
  const bool walks =
      loop >= 0 && loop < kVpuSectionDepth[static_cast<size_t>(section)] && loop != fixed_loop;
  if (!walks) {
    return lanes(std::min<int64_t>(total, block));
  }
  const int64_t step = operand.loop[static_cast<size_t>(loop)];
  const int64_t full = total / static_cast<uint32_t>(block);
  const int64_t tail = total % static_cast<uint32_t>(block);
  Interval result{INT64_MAX, INT64_MIN};
  if (full > 0) {
    const Interval in_block = lanes(block);
    result.low = std::min<int64_t>(0, (full - 1) * step) + in_block.low;
    result.high = std::max<int64_t>(0, (full - 1) * step) + in_block.high;
  }
  if (tail > 0) {
    const Interval in_block = lanes(tail);
    result.low = std::min(result.low, full * step + in_block.low);
    result.high = std::max(result.high, full * step + in_block.high);
  }
  return result;
}

VpuKernel::Interval VpuKernel::interval(const VpuInsn& insn, int section, int fixed_loop) const {
  const Operand& operand = operands_[insn.imm];
  const bool sublane0 = first_sublane_only(insn);
  const bool lane0 = first_lane_only(insn);
  Interval rows, cols;
  if (flat_) {
    const Lanes touched{sublane0 && lane0 ? 1 : (sublane0 ? kVpuLanes : kVpuBlock),
                        lane0 ? kVpuLanes : 1};
    cols = axis(operand, section, col_loop_, kVpuBlock, cols_, operand.lane, touched, fixed_loop);
  } else {
    rows = axis(operand, section, row_loop_, kVpuSublanes, rows_, operand.sub,
                {sublane0 ? 1 : kVpuSublanes, 1}, fixed_loop);
    cols = axis(operand, section, col_loop_, kVpuLanes, cols_, operand.lane,
                {lane0 ? 1 : kVpuLanes, 1}, fixed_loop);
  }
  Interval result{operand.base + rows.low + cols.low, operand.base + rows.high + cols.high};
  for (int d = 0; d < kVpuSectionDepth[static_cast<size_t>(section)]; ++d) {
    if (d == row_loop_ || d == col_loop_ || d == fixed_loop) {
      continue;
    }
    const auto index = static_cast<size_t>(d);
    const int64_t reach = (int64_t{loops_[index]} - 1) * operand.loop[index];
    result.low += std::min<int64_t>(0, reach);
    result.high += std::max<int64_t>(0, reach);
  }
  return result;
}

std::vector<VpuFootprint> VpuKernel::footprints_with(int fixed_loop) const {
  std::vector<VpuFootprint> result;
  for (int s = 0; s < kVpuSections; ++s) {
    for (const VpuInsn& insn : program_->section(s)) {
      if (is_memory_op(insn)) {
        const Interval range = interval(insn, s, fixed_loop);
        const int bytes = vpu_element_bytes(operands_[insn.imm].type);
        result.push_back({range.low, range.high + bytes,
                          static_cast<VpuOp>(insn.op) == VpuOp::kStore,
                          static_cast<int>(insn.imm)});
      }
    }
  }
  return result;
}

std::vector<VpuFootprint> VpuKernel::footprints() const {
  return empty() ? std::vector<VpuFootprint>() : footprints_with(-1);
}

int VpuKernel::split_loop() const {
  for (int d = 0; d < kVpuLoops; ++d) {
    if (loops_[static_cast<size_t>(d)] > 1) {
      return d;
    }
  }
  return kVpuLoops - 1;
}

uint64_t VpuKernel::split_count() const {
  return empty() ? 0 : loops_[static_cast<size_t>(split_loop())];
}

// Memory is independent when every store moves with the loop at least as far as what it may share
// with another access of one iteration.
bool VpuKernel::can_split() const {
  const int loop = split_loop();
  if (empty() || !program_->iterations_independent(loop)) {
    return false;
  }
  const std::vector<VpuFootprint> whole = footprints_with(-1);
  const std::vector<VpuFootprint> once = footprints_with(loop);
  for (size_t i = 0; i < whole.size(); ++i) {
    if (!whole[i].write) {
      continue;
    }
    const int64_t step =
        operands_[static_cast<size_t>(whole[i].access)].loop[static_cast<size_t>(loop)];
    for (size_t j = 0; j < whole.size(); ++j) {
      if (whole[i].end <= whole[j].begin || whole[j].end <= whole[i].begin) {
        continue;
      }
      const int64_t other =
          operands_[static_cast<size_t>(whole[j].access)].loop[static_cast<size_t>(loop)];
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
  uint64_t result = empty() ? 0 : 1;
  for (int d = 0; d < kVpuSectionDepth[static_cast<size_t>(section)]; ++d) {
    result *= loops_[static_cast<size_t>(d)];
  }
  return result;
}

uint64_t VpuKernel::lane_operations() const {
  uint64_t result = 0;
  for (int s = 0; s < kVpuSections; ++s) {
    result += executions(s) * program_->section(s).size() * kVpuBlock;
  }
  return result;
}

}  // namespace tpu::model
