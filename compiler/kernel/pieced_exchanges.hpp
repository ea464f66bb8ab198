// Exchanges that go piece by piece beside the product that reads or makes their array.
//   all_gather, then a product of it    the product begins with the rows that arrive first
//   a product, then its all_to_all      rows leave as soon as the product has made them
// This is what XLA calls a windowed einsum or collective matmul. Neither the graph nor an order of
// sums changes: the exchange sends its pieces part by part (plan/exchange/direct_plan.hpp), the
// product goes over its blocks in that order (plan/dot_plan.cpp), and the commands of both mix
// (program/late_arrivals.hpp, program/early_departures.hpp).
#pragma once

#include <optional>

#include "kernel/kernels.hpp"

namespace tpu::compiler {

// Loops of one side of a contraction, in an array that is exchanged in pieces.
struct PiecedSide {
  const std::vector<Contraction::Dim>* dims = nullptr;
  int64_t Contraction::Dim::*stride = nullptr;
  int64_t offset = 0;

  int64_t iterations_of_row(const PieceOrder& order) const;
};

// `arrives`: the array is an operand, else the result. Nothing: pieces are not parts of one side
// alone.
std::optional<PiecedSide> pieced_side(const Contraction& c, const PieceOrder& order, bool arrives);

// Lets `exchange` and `product`, which reads what arrives or makes what leaves, go piece by piece.
// `exposed`: cycles of the exchange that nothing else hides; `beside`: cycles of the product.
// Returns the cycles that it hides, 0 if it changes nothing.
double exchange_in_pieces(Kernel& exchange, Kernel& product, double exposed, double beside);

}  // namespace tpu::compiler
