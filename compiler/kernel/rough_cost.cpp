// See rough_cost.hpp.
#include "kernel/rough_cost.hpp"

#include <algorithm>

#include "program/estimate.hpp"

namespace tpu::compiler {

int64_t bytes_of_all(const std::vector<const Value*>& values) {
  int64_t bytes = 0;
  for (const Value* v : values) {
    bytes += v->type.bytes();
  }
  return bytes;
}

double rough_cycles(const Kernel& k, const spec::BoardParams& board) {
  const double moves = static_cast<double>(bytes_of_all(k.reads) + bytes_of_all(k.writes)) /
                       hbm_bytes_per_cycle(board);
  if (k.kind == KernelClass::kContract) {
    const Contraction& dot = k.contract().dot;
    double products = 1;
    for (const auto* dims : {&dot.batch, &dot.m, &dot.n, &dot.k}) {
      products *= static_cast<double>(Contraction::count(*dims));
    }
    return std::max(
        moves, products / static_cast<double>(board.core.mxus * board.mxu.rows * board.mxu.cols));
  }
  if (k.kind == KernelClass::kLoop) {
    const double lanes = static_cast<double>(board.vpu.lanes * board.vpu.sublanes);
    return std::max(moves, static_cast<double>(k.loop().nest.elements()) / lanes *
                               static_cast<double>(k.ops.size()) /
                               static_cast<double>(board.vpu.alus));
  }
  return moves;
}

}  // namespace tpu::compiler
