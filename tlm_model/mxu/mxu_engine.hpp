// The matrix unit's data work: what a command computes (MxuJob) and the interface of all that
// compute it (MxuEngine). Engines differ in speed only; their results are equal to the bit
// (spec/arith/mxu_column.hpp has the semantics). Time is not here: spec/arith/mxu_timing.hpp gives
// a command's cycles, whatever engine runs it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "arith/mxu_shape.hpp"
#include "arith/mxu_timing.hpp"

namespace tpu::model {

class MxuPackedOperand;

// out[m, n] (+)= sum over t, k of lhs[m, t, k] * rhs[t, k, n], addresses by counted strides in
// bytes (may be negative):
//   lhs + m.lhs + t.lhs + k * element       (k contiguous)
//   rhs + t.rhs + k.rhs + n.rhs
//   out + m.out + n.out                     (f32)
// In every array index 0 is the outermost loop and the last index the innermost; a count of 1
// switches a loop off. t, k: ascending; K (k_count flattened) is cut into tiles of shape.rows that
// never span two t, N into tiles of shape.cols inside the inner n run. Order: t, K tile, n outer, N
// tile, rows. f32 operands are rounded to bf16. The caller has checked all addresses. out must not
// overlap lhs or rhs, nor two outputs each other.
struct MxuJob {
  const uint8_t* lhs = nullptr;
  const uint8_t* rhs = nullptr;
  uint8_t* out = nullptr;
  bool lhs_is_bf16 = false;  // else f32
  bool rhs_is_bf16 = false;
  bool accumulate = false;      // start from out instead of +0
  bool rhs_transposed = false;  // free of cost and already in the strides; for reports only

  std::array<int64_t, 4> m_count{1, 1, 1, 1}, m_lhs_stride{}, m_out_stride{};
  std::array<int64_t, 3> t_count{1, 1, 1}, t_lhs_stride{}, t_rhs_stride{};
  std::array<int64_t, 3> k_count{1, 1, 1}, k_rhs_stride{};
  std::array<int64_t, 2> n_count{1, 1}, n_rhs_stride{}, n_out_stride{};

  // The part of the flattened rows to compute: [row_begin, row_end); row_end < 0 means all.
  int64_t row_begin = 0;
  int64_t row_end = -1;

  // Where engines that pack operands do that once for several jobs (mxu_packed.hpp); null: each for
  // itself.
  MxuPackedOperand* packed_lhs = nullptr;
  MxuPackedOperand* packed_rhs = nullptr;

  // For waveforms only: the command's start in core cycles, its operation, and the number of its
  // first tile in the life of the unit (-1: tiles are counted as they come).
  uint64_t start_cycle = 0;
  uint32_t op_id = 0;
  int64_t first_tile = -1;

  int64_t total_rows() const { return m_count[0] * m_count[1] * m_count[2] * m_count[3]; }
  int64_t rows() const { return (row_end < 0 ? total_rows() : row_end) - row_begin; }
  int64_t taps() const { return t_count[0] * t_count[1] * t_count[2]; }
  int64_t k() const { return k_count[0] * k_count[1] * k_count[2]; }
  int64_t n() const { return n_count[0] * n_count[1]; }
  int64_t terms() const { return rows() * taps() * k() * n(); }  // multiply-adds
  int64_t lhs_element() const { return lhs_is_bf16 ? 2 : 4; }
  int64_t rhs_element() const { return rhs_is_bf16 ? 2 : 4; }
};

// Offset of a flattened index in a nest of counted strides (index 0 outermost).
template <size_t kLevels>
int64_t nest_offset(int64_t index, const std::array<int64_t, kLevels>& count,
                    const std::array<int64_t, kLevels>& stride) {
  int64_t offset = 0;
  for (size_t level = kLevels; level-- > 0;) {
    offset += index % count[level] * stride[level];
    index /= count[level];
  }
  return offset;
}

// Bits that flip in one result of a job: a fault on purpose. `result`: any number, taken modulo the
// number of results, which count row by row.
struct MxuUpset {
  uint64_t result = 0;
  uint32_t mask = 0;
};
// Flips them in memory, where the job has left its results.
void mxu_flip(const MxuJob& job, const MxuUpset& upset);

class MxuEngine {
 public:
  virtual ~MxuEngine() = default;

  // Computes the job before returning. May be called from any thread; calls on one engine may
  // overlap, if their outputs do not. Throws std::runtime_error when the engine cannot run (shape,
  // host, files).
  virtual void run(const MxuJob& job) = 0;

  // The same, with bits of a result that flip before anybody looks at it.
  virtual void run_upset(const MxuJob& job, const MxuUpset& upset) {
    run(job);
    mxu_flip(job, upset);
  }

  // Like run() for each of `jobs`, of which each has the same rhs as the first (mxu_same_rhs):
  // an engine may bring it into its own order once for all.
  virtual void run_together(std::span<const MxuJob> jobs);

  // Jobs for which this is equal and not 0, and that have the same rhs, are less work together.
  virtual uint64_t group(const MxuJob& /*job*/) const { return 0; }

  // Whether it takes operands that are packed once for several jobs.
  virtual bool shares_operands() const { return false; }

  virtual const char* name() const = 0;

  // False when a job must arrive whole, since the engine counts its cycles or tiles.
  virtual bool splittable() const { return true; }

  // Of an engine with Verilog in it: how often others differed from it, or an assertion in it
  // failed.
  virtual uint64_t mismatches() const { return 0; }

  // What differed first in the newest job with a mismatch, for people; empty: nothing is known.
  virtual std::string mismatch_text() const { return {}; }
};

// Whether two jobs multiply by the same elements of rhs, in the same order and types; rows, and
// where results lie, are any.
bool mxu_same_rhs(const MxuJob& a, const MxuJob& b);

// The job's size for spec::mxu_command_timing.
spec::MxuExtent mxu_extent(const MxuJob& job);

// Cuts the rows into at most `parts` jobs of nearly equal length, each a multiple of `granule` rows
// but the last.
std::vector<MxuJob> mxu_split_rows(const MxuJob& job, int64_t parts, int64_t granule = 1);

// Likewise the columns: each inner run of them, or whole inner runs where those are shorter than
// `parts` granules.
std::vector<MxuJob> mxu_split_columns(const MxuJob& job, int64_t parts, int64_t granule = 1);

// How a job is best cut for threads that each pack the operands of their part: by rows all parts
// pack the same rhs, by columns the same lhs.
struct MxuCut {
  bool columns = false;
  int64_t most = 1;  // parts, however fast the host is
};
MxuCut mxu_cut(const MxuJob& job);
std::vector<MxuJob> mxu_split(const MxuJob& job, MxuCut cut, int64_t parts);

}  // namespace tpu::model
