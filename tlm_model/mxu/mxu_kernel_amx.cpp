// AMX kernels of the fast engine: blocks of up to 32 x 32 results, which stay in tile registers
// over all of K as a rule. lhs is read by strided tile loads: where it lies (bf16), from a range
// that was rounded once, or from packed rows.
#include "mxu/mxu_amx_pack.hpp"
#include "mxu/mxu_amx_results.hpp"
#include "mxu/mxu_amx_tiles.hpp"
#include "mxu/mxu_fast_kernels.hpp"

namespace tpu::model {
namespace {

constexpr int64_t kMostRows = 512;           // of a call
constexpr int64_t kLevel1Room = 24 << 10;    // half of the first-level cache
constexpr int64_t kLevel2Room = 1024 << 10;  // half of the second-level cache
constexpr int64_t kFewTermsBelow = 20;       // measured: docs/matrix_kernels.md
constexpr double kSkipBelowDensity = 0.05;   // an estimate: FMA kernels have a tenth of the rate

constexpr int64_t kRhsPiece = 16;  // segments

// An estimate: with tiles of fewer rows, loads of rhs take longer than packing lhs does.
constexpr int64_t kEvenRows = 7;

void multiply_block(const MxuBlockArgs& a, int64_t p, const RowTile& upper, const RowTile* lower,
                    TileRegisters* registers, TileResults* results) {
  const MxuPanel& panel = a.panels[p];
  const auto* const rhs =
      static_cast<const uint8_t*>(a.packed_rhs) + p * a.rhs_pitch * kSegmentBytes;
  const auto lhs_of = [&a](const RowTile& tile) {
    return reinterpret_cast<const uint8_t*>(a.row_at[tile.row]);
  };
  const bool right = panel.count > kTileRows;
  registers->configure(upper.rows, lower != nullptr ? lower->rows : upper.rows);
  results->start(panel, upper, lower);
  const auto each_segment = [results] { results->step(); };
  LhsTiles lhs{.upper = lhs_of(upper), .upper_pitch = upper.pitch, .lower = {}, .lower_pitch = {}};
  if (lower != nullptr) {
    lhs.lower = lhs_of(*lower);
    lhs.lower_pitch = lower->pitch;
    right ? add_segments<true, true>(a, lhs, rhs, each_segment)
          : add_segments<true, false>(a, lhs, rhs, each_segment);
  } else {
    right ? add_segments<false, true>(a, lhs, rhs, each_segment)
          : add_segments<false, false>(a, lhs, rhs, each_segment);
  }
  results->finish();
}

// A panel that fits the first-level cache stays there over all rows. Others come from the second
// level anyway: the rows of a block stay in the first over all of them, unless they are more than
// the second level holds.
void amx_multiply(const MxuBlockArgs& a) {
  RowTile tiles[kMostRows];
  const int64_t tile_count = cut_rows(a, tiles);
  const int64_t panel_bytes = a.segment_count * kSegmentBytes;
  const bool panels_inside =
      panel_bytes > kLevel1Room && panel_bytes * a.panel_count <= kLevel2Room;
  const int64_t pairs = (tile_count + 1) / 2;
  const int64_t inside = panels_inside ? a.panel_count : pairs;
  TileRegisters registers;
  TileResults results(a);
  for (int64_t i = 0; i < pairs * a.panel_count; ++i) {
    const int64_t pair = panels_inside ? i / inside : i % inside;
    const int64_t panel = panels_inside ? i % inside : i / inside;
    const RowTile* const upper = tiles + 2 * pair;
    multiply_block(a, panel, *upper, 2 * pair + 1 < tile_count ? upper + 1 : nullptr, &registers,
                   &results);
  }
  results.store_all();
  if (a.stream_out) {
    _mm_sfence();
  }
}

}  // namespace

const MxuKernelSet* mxu_kernels_amx() {
  static const MxuKernelSet set = {.nr = kSide,
                                   .block_segments = 512,
                                   .few_rows = 64,
                                   .few_rows_segments = 16,
                                   .block_rows = kMostRows,
                                   .outer_rows = kMostRows,
                                   .block_panels = 32,
                                   .placed_panels = 32,
                                   .placed_rhs_room = kLevel2Room,
                                   .slot_terms = 2,
                                   .range_terms = kMxuSegment,
                                   .range_step = 2,
                                   .even_rows = kEvenRows,
                                   .bf16_in_place = true,
                                   .few_terms = mxu_kernels_avx512(),
                                   .few_terms_below = kFewTermsBelow,
                                   .skip_below_density = kSkipBelowDensity,
                                   .sparse_columns = 0,
                                   .sparse_below = 0.0,
                                   .rhs_piece = kRhsPiece,
                                   .lhs_bytes = amx_lhs_bytes,
                                   .rhs_bytes = amx_rhs_bytes,
                                   .pack_lhs = amx_pack_lhs,
                                   .pack_rhs = amx_pack_rhs,
                                   .multiply = amx_multiply,
                                   .is_short = nullptr,
                                   .multiply_sparse = nullptr,
                                   .round_range = amx_round_range};
  return &set;
}

}  // namespace tpu::model
