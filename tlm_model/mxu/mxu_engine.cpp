// Tile order, offsets and operand packing of MXU jobs: the parts that every engine shares.
#include "mxu/mxu_engine.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "arith/bf16.hpp"
#include "mxu/mxu_tiles.hpp"

namespace tpu::model {
namespace {

uint16_t load_bf16(const uint8_t* address, bool is_bf16) {
  if (is_bf16) {
    uint16_t bits;
    std::memcpy(&bits, address, sizeof bits);
    return bits;
  }
  uint32_t bits;
  std::memcpy(&bits, address, sizeof bits);
  return spec::bf16_from_f32_bits(bits);
}

// Of parts: fewer rows than this are not worth the packing of rhs.
constexpr int64_t kPartRows = 96;
constexpr int64_t kPartRowGranule = 16;
// Panels of the kernels have at most so many columns.
constexpr int64_t kPartColumnGranule = 64;

}  // namespace

void mxu_flip(const MxuJob& job, const MxuUpset& upset) {
  const auto results = static_cast<uint64_t>(job.total_rows() * job.n());
  const auto index = static_cast<int64_t>(upset.result % results);
  uint8_t* const at = job.out + nest_offset(index / job.n(), job.m_count, job.m_out_stride) +
                      nest_offset(index % job.n(), job.n_count, job.n_out_stride);
  uint32_t bits;
  std::memcpy(&bits, at, sizeof bits);
  bits ^= upset.mask;
  std::memcpy(at, &bits, sizeof bits);
}

void MxuEngine::run_together(std::span<const MxuJob> jobs) {
  for (const MxuJob& job : jobs) {
    run(job);
  }
}

bool mxu_same_rhs(const MxuJob& a, const MxuJob& b) {
  const auto terms = [](const MxuJob& job) {
    return std::tie(job.rhs, job.rhs_is_bf16, job.lhs_is_bf16, job.accumulate, job.t_count,
                    job.t_lhs_stride, job.t_rhs_stride, job.k_count, job.k_rhs_stride);
  };
  const auto columns = [](const MxuJob& job) {
    return std::tie(job.n_count, job.n_rhs_stride, job.n_out_stride);
  };
  return terms(a) == terms(b) && columns(a) == columns(b);
}

spec::MxuExtent mxu_extent(const MxuJob& job) {
  const auto u = [](int64_t v) { return static_cast<uint64_t>(v); };
  return {.rows = u(job.rows()),
          .taps = u(job.taps()),
          .k = u(job.k()),
          .n_outer = u(job.n_count[0]),
          .n_inner = u(job.n_count[1])};
}

std::vector<MxuJob> mxu_split_rows(const MxuJob& job, int64_t parts, int64_t granule) {
  const int64_t end = job.row_begin + job.rows();
  int64_t step = (job.rows() + std::max<int64_t>(parts, 1) - 1) / std::max<int64_t>(parts, 1);
  step = std::max<int64_t>((step + granule - 1) / granule * granule, 1);
  std::vector<MxuJob> jobs;
  for (int64_t row = job.row_begin; row < end; row += step) {
    jobs.push_back(job);
    jobs.back().row_begin = row;
    jobs.back().row_end = std::min(row + step, end);
  }
  return jobs;
}

std::vector<MxuJob> mxu_split_columns(const MxuJob& job, int64_t parts, int64_t granule) {
  parts = std::max<int64_t>(parts, 1);
  const size_t loop = job.n_count[1] < parts * granule && job.n_count[0] > 1 ? 0 : 1;
  const int64_t count = job.n_count[loop];
  int64_t step = (count + parts - 1) / parts;
  if (loop == 1) {
    step = (step + granule - 1) / granule * granule;
  }
  std::vector<MxuJob> jobs;
  for (int64_t first = 0; first < count; first += step) {
    MxuJob& part = jobs.emplace_back(job);
    part.n_count[loop] = std::min(step, count - first);
    part.rhs += first * job.n_rhs_stride[loop];
    part.out += first * job.n_out_stride[loop];
  }
  return jobs;
}

MxuCut mxu_cut(const MxuJob& job) {
  const MxuCut rows{.columns = false, .most = std::max<int64_t>(job.rows() / kPartRows, 1)};
  const MxuCut columns{
      .columns = true,
      .most = std::max({job.n_count[1] / kPartColumnGranule, job.n_count[0], int64_t{1}})};
  // What each further part packs. Taps mostly read the same rows of lhs.
  const int64_t by_rows = job.taps() * job.k() * job.n() * job.rhs_element();
  const int64_t by_columns = job.rows() * job.k() * job.lhs_element();
  const bool prefer_columns = by_columns < by_rows ? columns.most > 1 : rows.most < 2;
  return prefer_columns ? columns : rows;
}

std::vector<MxuJob> mxu_split(const MxuJob& job, MxuCut cut, int64_t parts) {
  return cut.columns ? mxu_split_columns(job, parts, kPartColumnGranule)
                     : mxu_split_rows(job, parts, kPartRowGranule);
}

std::vector<MxuTile> mxu_tiles(const MxuJob& job, const spec::MxuShape& shape) {
  const auto rows = static_cast<int64_t>(shape.rows);
  const auto cols = static_cast<int64_t>(shape.cols);
  std::vector<MxuTile> tiles;
  for (int64_t t = 0; t < job.taps(); ++t) {
    const int64_t t_lhs = nest_offset(t, job.t_count, job.t_lhs_stride);
    const int64_t t_rhs = nest_offset(t, job.t_count, job.t_rhs_stride);
    for (int64_t k = 0; k < job.k(); k += rows) {
      int64_t n_tile = 0;
      for (int64_t n0 = 0; n0 < job.n_count[0]; ++n0) {
        for (int64_t n1 = 0; n1 < job.n_count[1]; n1 += cols) {
          tiles.push_back({
              .lhs_offset = t_lhs + k * job.lhs_element(),
              .rhs_offset = t_rhs + n0 * job.n_rhs_stride[0] + n1 * job.n_rhs_stride[1],
              .out_offset = n0 * job.n_out_stride[0] + n1 * job.n_out_stride[1],
              .k_first = k,
              .k_rows = std::min(rows, job.k() - k),
              .cols = std::min(cols, job.n_count[1] - n1),
              .n_tile = n_tile++,
              .first = t == 0 && k == 0,
          });
        }
      }
    }
  }
  return tiles;
}

MxuOffsets mxu_offsets(const MxuJob& job) {
  MxuOffsets offsets;
  const int64_t end = job.row_begin + job.rows();
  for (int64_t row = job.row_begin; row < end; ++row) {
    offsets.row_lhs.push_back(nest_offset(row, job.m_count, job.m_lhs_stride));
    offsets.row_out.push_back(nest_offset(row, job.m_count, job.m_out_stride));
  }
  for (int64_t k = 0; k < job.k(); ++k) {
    offsets.k_rhs.push_back(nest_offset(k, job.k_count, job.k_rhs_stride));
  }
  return offsets;
}

void mxu_pack_weights(const MxuJob& job, const MxuOffsets& offsets, const MxuTile& tile,
                      const spec::MxuShape& shape, uint16_t* weights) {
  std::fill_n(weights, size_t{shape.rows} * shape.cols, uint16_t{0});
  for (int64_t k = 0; k < tile.k_rows; ++k) {
    const uint8_t* source =
        job.rhs + tile.rhs_offset + offsets.k_rhs[static_cast<size_t>(tile.k_first + k)];
    uint16_t* row = weights + static_cast<size_t>(k) * shape.cols;
    for (int64_t n = 0; n < tile.cols; ++n) {
      row[n] = load_bf16(source + n * job.n_rhs_stride[1], job.rhs_is_bf16);
    }
  }
}

void mxu_pack_row(const MxuJob& job, const MxuOffsets& offsets, const MxuTile& tile,
                  const spec::MxuShape& shape, size_t row, uint16_t* x) {
  const uint8_t* source = job.lhs + offsets.row_lhs[row] + tile.lhs_offset;
  for (int64_t k = 0; k < tile.k_rows; ++k) {
    x[k] = load_bf16(source + k * job.lhs_element(), job.lhs_is_bf16);
  }
  std::fill(x + tile.k_rows, x + shape.rows, uint16_t{0});
}

void mxu_load_out(const MxuJob& job, const MxuOffsets& offsets, const MxuTile& tile,
                  const spec::MxuShape& shape, size_t row, uint32_t* bits) {
  const uint8_t* source = job.out + offsets.row_out[row] + tile.out_offset;
  for (int64_t n = 0; n < tile.cols; ++n) {
    std::memcpy(bits + n, source + n * job.n_out_stride[1], sizeof *bits);
  }
  std::fill(bits + tile.cols, bits + shape.cols, 0u);
}

void mxu_store_out(const MxuJob& job, const MxuOffsets& offsets, const MxuTile& tile, size_t row,
                   const uint32_t* bits) {
  uint8_t* target = job.out + offsets.row_out[row] + tile.out_offset;
  for (int64_t n = 0; n < tile.cols; ++n) {
    std::memcpy(target + n * job.n_out_stride[1], bits + n, sizeof *bits);
  }
}

}  // namespace tpu::model
