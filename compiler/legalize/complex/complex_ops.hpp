// Ops on complex64 arrays that are more than arithmetic of elements, in terms of their parts.
#pragma once

#include "legalize/complex/complex_math.hpp"

namespace tpu::compiler {

// Contractions as four products of real arrays, at the precision of the op; an operand that was
// made of a real array has two.
Complex complex_dot(const Op& op, const Complex& a, const Complex& b, Rewriter& rw);
Complex complex_convolution(const Op& op, const Complex& a, const Complex& b, Rewriter& rw);

// Parts of a constant.
Complex complex_constant(const Dense& value, Rewriter& rw);

// [.., 2] words to parts and back.
Complex unpack_complex(Value* words, Rewriter& rw);
Value* pack_complex(const Complex& x, Rewriter& rw);

// Sums, and whatever else treats the parts alike, over each part by itself: reduce, reduce_window,
// all_reduce, reduce_scatter and scatter whose body adds, or takes the update. False for other
// bodies.
bool has_bodies_of_parts(const Op& op);

// The body for one part.
void part_body(const Op& op, Op& made);

// Factorisations and solvers of complex matrices: the parts of each complex result. A real result
// is the first part.
std::vector<Complex> complex_lu(const Op& op, const Complex& a, Rewriter& rw);
std::vector<Complex> complex_qr(const Op& op, const Complex& a, Rewriter& rw);
std::vector<Complex> complex_householder_product(const Op& op, const Complex& a,
                                                 const Complex& taus, Rewriter& rw);
std::vector<Complex> complex_eigh(const Op& op, const Complex& a, Rewriter& rw);
std::vector<Complex> complex_matrix_op(const Op& op, const std::vector<Complex>& operands,
                                       Rewriter& rw);

}  // namespace tpu::compiler
