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

// Visits base + all combinations of levels; levels that continue the run are folded into it.
void visit_levels(std::vector<Level> levels, uint64_t base, uint64_t run, bool write,
                  const RunVisitor& visit) {
  std::erase_if(levels, [](const Level& l) { return l.count == 1 || l.stride == 0; });
  while (!levels.empty() && levels.back().stride == static_cast<int64_t>(run)) {
    run *= levels.back().count;
    levels.pop_back();
  }
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
  void block(const spec::VpuAccess& a, int64_t at, uint64_t rows, uint64_t cols, bool write) const;
};

// Elements of one block under its tail masks.
void VpuWalk::block(const spec::VpuAccess& a, int64_t at, uint64_t rows, uint64_t cols,
                    bool write) const {
  const auto bytes = static_cast<uint64_t>(vpu_element_bytes(a.type));
  visit_levels({{rows, a.sub}, {cols, a.lane}}, static_cast<uint64_t>(at), bytes, write, visit);
}

void VpuWalk::instruction(const spec::VpuInsn& insn, int depth) const {
  const bool store = insn.op == static_cast<uint8_t>(spec::VpuOp::kStore);
  if (!store && insn.op != static_cast<uint8_t>(spec::VpuOp::kLoad)) {
    return;
  }
  const size_t number = insn.imm & 0xff;
  const spec::VpuAccess& a = plan.accesses[number];
  const spec::VpuKernelCommand& c = plan.command;
  const bool flat = (c.head.flags & 1) != 0;
  const auto mode = store ? static_cast<spec::VpuStoreMode>(insn.rs2) : spec::VpuStoreMode::kAll;
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
    if (mode == spec::VpuStoreMode::kSublane0 || mode == spec::VpuStoreMode::kElement0) {
      rows = std::min<uint64_t>(rows, 1);
    }
    if (mode == spec::VpuStoreMode::kLane0 || mode == spec::VpuStoreMode::kElement0) {
      cols = std::min<uint64_t>(cols, 1);
    }
    if (rows > 0 && cols > 0) {
      int64_t at = bases[number];
      for (size_t d = 0; d < kVpuLoops; ++d) {
        at += static_cast<int64_t>(index[d]) * a.loop[d];
      }
      block(a, at, rows, cols, store);
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
  if (std::ranges::find(plan.command.loops, 0u) != plan.command.loops.end()) {
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
