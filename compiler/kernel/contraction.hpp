// Contractions over strided buffers: from the dims of a dot_general (whose operands may be views:
// windows, slices, transposes) to loops batch, m, n, k, and how the matrix unit reads them.
#pragma once

#include <array>

#include "kernel/kernels.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

// One operand: a buffer and its strides along the dims of the operand.
struct ContractionSide {
  const Value* buffer = nullptr;
  int64_t offset = 0;
  Dims strides;
};

// Where a dim of the dot's result lies in the value that is written: pieces, outermost first.
struct OutPiece {
  int64_t n = 1, stride = 0;
};
using OutPieces = std::vector<std::vector<OutPiece>>;

// Dims that are neither batch nor contracting, ascending.
Dims free_dims(int64_t rank, const Dims& batch, const Dims& contract);

// The dims of `from`, dense and row-major, in a value that views it (transposes, reshapes) with
// the given dims and strides in elements of `from`. Empty if they cut each other.
OutPieces pieces_of(const Dims& from, const Dims& dims, const Dims& strides);

Contraction make_contraction(const Op& op, const std::array<ContractionSide, 2>& side,
                             const OutPieces& out);

// The weights can be loaded if their columns or their contraction run along memory.
bool weights_can_load(const Contraction& c);
// The sides change places.
Contraction swapped(Contraction c);

// One way to run a contraction. The order of the sum follows from it, and it from shapes and board
// alone: k dims descend by their stride in the rows; the innermost `run` of them are one flattened
// K of a command (cut into K tiles), the others are taps.
struct Mapping {
  enum class Rows {
    kDirect,           // a row's run lies dense in memory
    kTranspose,        // the transpose unit transposes [K][M]
    kGather,           // a DMA inside VMEM brings the rows to [M][K]
    kGatherTranspose,  // a DMA inside VMEM brings them to [K][M], then the transpose unit
    kTransposeBox,  // the transpose unit transposes the operand's box [k][others]: the k dim of the largest
                    // stride runs innermost, windows that overlap are transposed once
  };
  Contraction c;
  Rows rows = Rows::kDirect;
  size_t run = 0;
  // The run is cut: the k dim `chunk_dim` to pieces of `chunk`, dims outside of it to 1. 0: not
  // cut, or (a run of one dim) anywhere at multiples of the array's rows.
  size_t chunk_dim = 0;
  int64_t chunk = 0;
  bool transpose_out = false;  // rows, not columns, are contiguous in the output
  double cost = 0;             // cycles, roughly

  bool transposes() const { return rows == Rows::kTranspose || rows == Rows::kGatherTranspose; }
  bool transposes_box() const { return rows == Rows::kTransposeBox; }
  bool gathers() const { return rows == Rows::kGather || rows == Rows::kGatherTranspose; }
};

Mapping map_contraction(const Contraction& c, const spec::BoardParams& board);

// Merges neighbours whose strides nest and drops dims of one iteration.
void merge_dims(std::vector<Contraction::Dim>& dims);

}  // namespace tpu::compiler
