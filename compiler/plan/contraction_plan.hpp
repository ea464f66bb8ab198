// Tiles of one contraction: how its loops are cut.
#pragma once

#include <optional>
#include <vector>

#include "kernel/contraction.hpp"
#include "plan/tile_box.hpp"

namespace tpu::compiler {

// A cut of nested loops: loops outside of `axis` go one by one, those inside stay whole, `axis`
// goes in pieces of `size`.
struct Cut {
  size_t axis = 0;
  int64_t size = 1;
};

// Ranges of nested loops in one block.
struct Block {
  Dims start, count;

  int64_t iterations() const;
  bool operator==(const Block&) const = default;
};

// All blocks of a cut, in the order of the loops.
std::vector<Block> blocks_of(const std::vector<Contraction::Dim>& dims, const Cut& cut);

// Offset of a block's first iteration, with the given stride of each dim.
int64_t offset_of(const std::vector<Contraction::Dim>& dims, const Block& b,
                  int64_t Contraction::Dim::*stride);

// What a plan may put into VMEM, and what already lies there.
struct TileLimits {
  int64_t budget = 0;  // bytes for blocks
  bool lhs_whole = false, rhs_whole = false, out_whole = false;
  bool narrow_out = false;  // bf16 result: f32 sums first
  bool direct_out = false;  // sums go straight to the whole output
  // Of epilogues: bytes that they stream for an element of the block, and that pass from one to
  // another; rows must fill vectors, or the output's innermost dim stay whole.
  int64_t epilogue_bytes = 0, local_bytes = 0;
  bool whole_vectors = false, whole_columns = false;
  // Of weights that meet a few rows: their blocks may take so much VMEM together. 0: there are
  // none.
  int64_t stream_bytes = 0;
  // The same of an operand that is another one for each batch.
  int64_t batch_bytes = 0;
  // The side whose blocks go piece by piece: all columns of a piece of rows are done before the
  // next one begins. Blocks are inside of a piece if there are such cuts.
  enum class Pieced : uint8_t { kNone, kRows, kColumns } pieced = Pieced::kNone;
  int64_t pieces = 1;
  int64_t piece_rows = 0;  // iterations of the side's loops in a piece of a member
};

inline constexpr int64_t kFewRows = 8;  // the load of the weights takes longer than their product

// Slots that the blocks of an operand pass through, two at least.
int64_t slots_of_blocks(const TileLimits& limits, int64_t bytes);

struct TileChoice {
  Cut m, n, k;
  bool rows_outside = false;  // order of the tile loops: rows, columns, k; else columns, rows, k
  double cycles = 0;
};

// The cheapest cut; nothing if none fits.
std::optional<TileChoice> choose_tiles(const Mapping& w, const TileLimits& limits,
                                       const spec::BoardParams& board);

// Cycles of one block on the matrix units.
struct UnitShare {
  enum class By { kNone, kOuterColumns, kColumns, kRows } by = By::kNone;
  int64_t each = 0;  // iterations of the shared dim on a unit; the last one has the rest
  double cycles = 0;
};
// Columns are shared if two units or more get a tile, else rows; k never is. A unit may get none.
// The dims are those of the block.
UnitShare share_units(const std::vector<int64_t>& m, const std::vector<int64_t>& n, int64_t k_tiles,
                      const spec::BoardParams& board);

// A block of a contraction as iterations of its epilogue's nest (epilogue.hpp).
struct NestBlock {
  Dims start, count;
  Dims stride;  // per loop, in elements of the block's tile
};

}  // namespace tpu::compiler
