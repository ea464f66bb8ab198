// Dispatch of the pass `linalg`: see linalg.hpp.
#include "legalize/linalg/linalg.hpp"

#include <algorithm>

#include "ir/op_traits.hpp"

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

}  // namespace

std::vector<Value*> expand_matrix_op(const Op& op, Rewriter& rw) {
  if (!is_matrix_op(op.kind)) {
    return {};
  }
  if (op.operand_type(0).count() == 0 || op.type().count() == 0) {
    return empty_results(op, rw);
  }
  static constexpr KindTable<std::vector<Value*> (*)(const Op&, Rewriter&)> kExpansions{
      {Kind::kCholesky, legalization::cholesky},
      {Kind::kTriangularSolve, legalization::triangular_solve},
      {Kind::kQr, legalization::qr},
      {Kind::kHouseholderProduct, legalization::householder_product},
      {Kind::kLu, legalization::lu},
      {Kind::kEigh, legalization::eigh}};
  static_assert(kExpansions.has_all([](Kind k) { return traits_of(k).group == Group::kMatrix; }));
  return kExpansions.find(op.kind)(op, rw);
}

bool expand_linalg(Module& module) { return Rewriter().run(module.main->body, expand_matrix_op); }

}  // namespace tpu::compiler
