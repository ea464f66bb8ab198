// Enumeration of runs by counted strides.
#include "core/access_walk.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace tpu::model {
namespace {

struct Level {
  uint64_t count;
  int64_t stride;
};

// The same set of bytes with as few and as long runs as possible: backward levels turned round,
// levels in ascending order of stride, and what continues or overlaps what lies inside it folded
// in (taps of a window, elements of a transposed load). Changes base and run.
void merge_levels(std::vector<Level>& levels, uint64_t& base, uint64_t& run) {
  std::erase_if(levels, [](const Level& l) { return l.count == 1 || l.stride == 0; });
  for (Level& level : levels) {
    if (level.stride < 0) {
      base += (level.count - 1) * static_cast<uint64_t>(level.stride);
      level.stride = -level.stride;
    }
  }
  std::ranges::stable_sort(levels, {}, &Level::stride);
  std::vector<Level> kept;
  for (const Level& level : levels) {
    const auto stride = static_cast<uint64_t>(level.stride);
    if (kept.empty()) {
      if (stride <= run) {
        run += (level.count - 1) * stride;
      } else {
        kept.push_back(level);
      }
      continue;
    }
    // Steps of a multiple of the stride inside it that leave no gap: one longer level.
    Level& inner = kept.back();
    const auto inner_stride = static_cast<uint64_t>(inner.stride);
    if (stride % inner_stride == 0 && stride / inner_stride <= inner.count) {
      inner.count += (level.count - 1) * (stride / inner_stride);
    } else {
      kept.push_back(level);
    }
  }
  levels.assign(kept.rbegin(), kept.rend());
}

// Visits base + all combinations of levels.
void visit_levels(std::vector<Level> levels, uint64_t base, uint64_t run, bool write,
                  const RunVisitor& visit) {
  merge_levels(levels, base, run);
  std::vector<uint64_t> index(levels.size(), 0);
  for (;;) {
    uint64_t address = base;
    for (size_t i = 0; i < levels.size(); ++i) {
      address += index[i] * static_cast<uint64_t>(levels[i].stride);
    }
    visit(address, run, write);
    size_t i = levels.size();
    while (i > 0 && ++index[i - 1] == levels[i - 1].count) {
      index[--i] = 0;
    }
    if (i == 0) {
      return;
    }
  }
}

template <size_t kCount>
void add_levels(std::vector<Level>& levels, const std::array<int64_t, kCount>& count,
                const std::array<int64_t, kCount>& stride) {
  for (size_t i = 0; i < kCount; ++i) {
    levels.push_back({static_cast<uint64_t>(count[i]), stride[i]});
  }
}

struct VpuWalk {
  const VpuPlan& plan;
  std::span<const int64_t> bases;
  const RunVisitor& visit;

  void instruction(const spec::VpuInsn& insn, int depth) const;
  // All blocks of an instruction at once; false when tails make them irregular.
  bool whole(const spec::VpuAccess& a, int64_t base, int depth, bool sublane0, bool lane0,
             bool write) const;
  void blocks(const spec::VpuAccess& a, int64_t base, int depth, bool sublane0, bool lane0,
              bool write) const;
  void block(const spec::VpuAccess& a, int64_t at, uint64_t rows, uint64_t cols, bool write) const;
};

// Rows or columns of all blocks that a section sees as levels; false when they are irregular.
bool add_axis(std::vector<Level>& levels, uint64_t total, uint64_t block, int64_t stride,
              bool first_only, uint64_t blocks, int64_t block_stride) {
  if (first_only) {
    levels.push_back({blocks, block_stride});
    return true;
  }
  if (blocks == 1) {
    levels.push_back({std::min(total, block), stride});
    return true;
  }
  if (block_stride == static_cast<int64_t>(block) * stride) {
    levels.push_back({total, stride});
    return true;
  }
  levels.push_back({blocks, block_stride});
  levels.push_back({block, stride});
  return total % block == 0;
}

bool VpuWalk::whole(const spec::VpuAccess& a, int64_t base, int depth, bool sublane0, bool lane0,
                    bool write) const {
  const spec::VpuKernelCommand& c = plan.command;
  const bool flat = c.flat();
  const auto walks = [&](uint8_t loop) { return loop < kVpuLoops && loop < depth; };
  const auto count = [&](uint8_t loop) { return walks(loop) ? uint64_t{c.loops[loop]} : 1; };
  const auto stride = [&](uint8_t loop) { return walks(loop) ? a.loop[loop] : 0; };
  std::vector<Level> levels;
  for (uint8_t d = 0; d < depth; ++d) {
    if (d != c.row_loop && d != c.col_loop) {
      levels.push_back({c.loops[d], a.loop[d]});
    }
  }
  if (!add_axis(levels, c.cols, flat ? kVpuBlock : kVpuLanes, a.lane, lane0, count(c.col_loop),
                stride(c.col_loop)) ||
      (!flat && !add_axis(levels, c.rows, kVpuSublanes, a.sub, sublane0, count(c.row_loop),
                          stride(c.row_loop)))) {
    return false;
  }
  visit_levels(levels, static_cast<uint64_t>(base),
               static_cast<uint64_t>(vpu_element_bytes(a.type)), write, visit);
  return true;
}

// Elements of one block under its tail masks.
void VpuWalk::block(const spec::VpuAccess& a, int64_t at, uint64_t rows, uint64_t cols,
                    bool write) const {
  const auto bytes = static_cast<uint64_t>(vpu_element_bytes(a.type));
  visit_levels({{rows, a.sub}, {cols, a.lane}}, static_cast<uint64_t>(at), bytes, write, visit);
}

void VpuWalk::blocks(const spec::VpuAccess& a, int64_t base, int depth, bool sublane0, bool lane0,
                     bool write) const {
  const spec::VpuKernelCommand& c = plan.command;
  const bool flat = c.flat();
  std::array<uint64_t, kVpuLoops> index{};
  for (;;) {
    const uint64_t row_block = c.row_loop < kVpuLoops ? index[c.row_loop] : 0;
    const uint64_t col_block = c.col_loop < kVpuLoops ? index[c.col_loop] : 0;
    const uint64_t width = flat ? kVpuBlock : kVpuLanes;
    uint64_t rows =
        flat ? 1
             : std::min<uint64_t>(c.rows - std::min<uint64_t>(c.rows, row_block * kVpuSublanes),
                                  kVpuSublanes);
    uint64_t cols =
        std::min<uint64_t>(c.cols - std::min<uint64_t>(c.cols, col_block * width), width);
    rows = sublane0 ? std::min<uint64_t>(rows, 1) : rows;
    cols = lane0 ? std::min<uint64_t>(cols, 1) : cols;
    if (rows > 0 && cols > 0) {
      int64_t at = base;
      for (size_t d = 0; d < kVpuLoops; ++d) {
        at += static_cast<int64_t>(index[d]) * a.loop[d];
      }
      block(a, at, rows, cols, write);
    }
    int d = depth - 1;
    while (d >= 0 && ++index[static_cast<size_t>(d)] == c.loops[static_cast<size_t>(d)]) {
      index[static_cast<size_t>(d--)] = 0;
    }
    if (d < 0) {
      return;
    }
  }
}

void VpuWalk::instruction(const spec::VpuInsn& insn, int depth) const {
  const bool store = insn.op == static_cast<uint8_t>(spec::VpuOp::kStore);
  if (!store && insn.op != static_cast<uint8_t>(spec::VpuOp::kLoad)) {
    return;
  }
  const size_t number = insn.imm & 0xff;
  const spec::VpuAccess& a = plan.accesses[number];
  const auto mode = store ? static_cast<spec::VpuStoreMode>(insn.rs2) : spec::VpuStoreMode::kAll;
  const bool sublane0 =
      mode == spec::VpuStoreMode::kSublane0 || mode == spec::VpuStoreMode::kElement0;
  const bool lane0 = mode == spec::VpuStoreMode::kLane0 || mode == spec::VpuStoreMode::kElement0;
  if (!whole(a, bases[number], depth, sublane0, lane0, store)) {
    blocks(a, bases[number], depth, sublane0, lane0, store);
  }
}

}  // namespace

void visit_matmul(const MatmulPlan& plan, uint64_t out, uint64_t lhs, uint64_t rhs,
                  const RunVisitor& visit) {
  const MxuJob& j = plan.job;
  std::vector<Level> levels;
  add_levels(levels, j.t_count, j.t_lhs_stride);
  add_levels(levels, j.m_count, j.m_lhs_stride);
  visit_levels(levels, lhs, static_cast<uint64_t>(j.k() * j.lhs_element()), false, visit);
  levels.clear();
  add_levels(levels, j.t_count, j.t_rhs_stride);
  add_levels(levels, j.k_count, j.k_rhs_stride);
  add_levels(levels, j.n_count, j.n_rhs_stride);
  visit_levels(levels, rhs, static_cast<uint64_t>(j.rhs_element()), false, visit);
  levels.clear();
  add_levels(levels, j.m_count, j.m_out_stride);
  add_levels(levels, j.n_count, j.n_out_stride);
  if (j.accumulate) {
    visit_levels(levels, out, sizeof(float), false, visit);
  }
  visit_levels(levels, out, sizeof(float), true, visit);
}

void visit_vpu(const VpuPlan& plan, std::span<const int64_t> bases, const RunVisitor& visit) {
  if (plan.command.rows == 0 || plan.command.cols == 0 ||
      std::ranges::find(plan.command.loops, 0u) != plan.command.loops.end()) {
    return;
  }
  const VpuWalk walk{plan, bases, visit};
  for (int section = 0; section < kVpuSections; ++section) {
    for (const spec::VpuInsn& insn : plan.program->section(section)) {
      walk.instruction(insn, kVpuSectionDepth[static_cast<size_t>(section)]);
    }
  }
}

void visit_transpose(const TransposePlan& plan, uint64_t src, uint64_t dst,
                     const RunVisitor& visit) {
  const TransposeShape& s = plan.shape;
  visit_levels({{s.batch, s.src_batch}, {s.rows, s.src_pitch}}, src, s.cols * s.elem_bytes, false,
               visit);
  visit_levels({{s.batch, s.dst_batch}, {s.cols, s.dst_pitch}}, dst, s.rows * s.elem_bytes, true,
               visit);
}

void visit_box(const StridedBox& box, BoxSide side, uint64_t base, const RunVisitor& visit) {
  std::vector<Level> levels;
  for (size_t l = 0; l < static_cast<size_t>(box.levels); ++l) {
    levels.push_back({box.count[l], side == BoxSide::kSrc ? box.src[l] : box.dst[l]});
  }
  visit_levels(levels, base, box.run_bytes, side == BoxSide::kDst, visit);
}

}  // namespace tpu::model
