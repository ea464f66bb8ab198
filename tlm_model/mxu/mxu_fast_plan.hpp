// How the fast engine cuts a job: segments of the sum in order, panels of columns, byte offsets of
// rows and k. Kept by a thread and filled again for every job, so that nothing allocates in the
// steady state.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "arith/mxu_shape.hpp"
#include "mxu/mxu_engine.hpp"
#include "mxu/mxu_fast_kernels.hpp"

namespace tpu::model {

// A range of lhs that is rounded once as it lies in memory; rows and taps that overlap share it.
struct MxuLhsRange {
  bool use = false;
  int64_t first = 0;  // byte offset from lhs
  int64_t count = 0;  // elements
};

// Of row_lhs and row_out.
struct MxuRows {
  size_t first = 0;
  size_t count = 0;
};

class MxuFastPlan {
 public:
  // Panels of at most `nr` columns. The rows of all jobs, which have the same rhs (mxu_same_rhs);
  // places count from the operands of the first.
  void make(std::span<const MxuJob> jobs, const spec::MxuShape& shape, int64_t nr);

  std::vector<MxuSegment> segments;
  std::vector<MxuPanel> panels;
  std::vector<int64_t> row_lhs, row_out, k_rhs;  // byte offsets
  std::vector<MxuRows> job_rows;                 // by job

  // For the kernels of `set`: of the rows of one job.
  MxuLhsRange lhs_range(const MxuJob& job, const MxuRows& rows, const MxuKernelSet& set) const;
  // Whether they read lhs where it lies.
  bool lhs_in_place(const MxuJob& job, const MxuKernelSet& set) const;

 private:
  // Whether row_at and segment_at can tell what kernels of `set` read of lhs.
  bool fits_slots(const MxuJob& job, const MxuRows& rows, const MxuKernelSet& set) const;
  void make_segments(const MxuJob& job, int64_t tile_rows);
  void make_panels(const MxuJob& job, int64_t nr);

  std::vector<int64_t> columns_;  // of panels that gather columns
};

}  // namespace tpu::model
