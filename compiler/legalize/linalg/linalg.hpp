// Pass `linalg`: factorisations and solvers of matrices as loops over their columns.
//   before   l = cholesky a
//   after    while (i < n) { row i of the factor; what it explains is taken from the rest }
// The loops work on whole matrices with masks, for all matrices of a batch at once, in f32 or f64:
// a program does not grow with the size of its matrices. Every step is a few fused kernels.
#pragma once

#include <vector>

#include "passes/rewriter.hpp"

namespace tpu::compiler {

// True if anything was replaced.
bool expand_linalg(Module& module);
// The values that replace one of its ops; nothing for others.
std::vector<Value*> expand_matrix_op(const Op& op, Rewriter& rw);

namespace legalization {

// Each gives the values that replace the op.
std::vector<Value*> cholesky(const Op& op, Rewriter& rw);
std::vector<Value*> triangular_solve(const Op& op, Rewriter& rw);
std::vector<Value*> qr(const Op& op, Rewriter& rw);
std::vector<Value*> householder_product(const Op& op, Rewriter& rw);
std::vector<Value*> lu(const Op& op, Rewriter& rw);
std::vector<Value*> eigh(const Op& op, Rewriter& rw);

}  // namespace legalization

}  // namespace tpu::compiler
