// Dispatch of the pass `linalg`: see linalg.hpp.
#include "legalize/linalg/linalg.hpp"

#include <algorithm>

namespace tpu::compiler {
namespace {

// Of arrays without elements nothing is to be computed.
std::vector<Value*> empty_results(const Op& op, Rewriter& rw) {
  std::vector<Value*> out;
  for (const auto& r : op.results) {
    out.push_back(rw.constant(make_splat_int(r->type, 0)));
  }
  return out;
}

std::vector<Value*> expand(const Op& op, Rewriter& rw) {
  if (!is_matrix_op(op.kind)) {
    return {};
  }
  if (op.operand_type(0).count() == 0 || op.type().count() == 0) {
    return empty_results(op, rw);
  }
  switch (op.kind) {
    case Kind::kCholesky:
      return legalization::cholesky(op, rw);
    case Kind::kTriangularSolve:
      return legalization::triangular_solve(op, rw);
    case Kind::kQr:
      return legalization::qr(op, rw);
    case Kind::kHouseholderProduct:
      return legalization::householder_product(op, rw);
    case Kind::kLu:
      return legalization::lu(op, rw);
    default:
      return legalization::eigh(op, rw);
  }
}

}  // namespace

bool expand_linalg(Module& module) { return Rewriter().run(module.main->body, expand); }

}  // namespace tpu::compiler
