// `Eigh`: eigenvalues and vectors of symmetric matrices by Jacobi rotations, as many at a time as
// the matrix has pairs of rows (Brent and Luk, 1985). The matrix is held as four quarters, so that
// the pairs are (row i of the upper half, row i of the lower half): a step rotates every pair and
// then moves the rows and columns round, as a round-robin tournament does:
//   upper  0 1 2 3        0 4 1 2
//   lower  4 5 6 7   ->   5 6 7 3
// After 2 h - 1 steps each pair has met once (a sweep) and every row is back at its place. A matrix
// of odd size gets a row and column of zeros, which no rotation touches.
#include <algorithm>

#include "legalize/linalg/linalg.hpp"
#include "legalize/linalg/matrices.hpp"

namespace tpu::compiler::legalization {
namespace {

struct Rotation {
  Value *c, *s;           // [batch, h, 1]
  Value *first, *second;  // diagonal elements after it
};

class Jacobi {
 public:
  Jacobi(const Op& op, Rewriter& rw)
      : op_(op),
        m_(rw, op.operand_type(0)),
        n_(op.type().dims.back()),
        half_((n_ + 1) / 2),
        diagonal_(m_.compare_indices(Direction::kEq, half_, half_)) {}

  std::vector<Value*> run() {
    Value* a = symmetric();
    Value* most = m_.reduce(Kind::kMaximum, m_.unary(Kind::kAbs, a), 0, 2);
    Value* scale = m_.scale(m_.reduce(Kind::kMaximum, most, 0, 1));
    a = m_.div(a, scale);
    const int64_t batch = Matrices::dim(a, 0);
    Value* rows = m_.indices(2 * half_, 1);
    Value *zero = m_.number(0), *one = m_.builder().splat({m_.elem(), {batch, 1, 1}}, 1);
    Value* eye = m_.where(Direction::kEq, rows, m_.indices(2 * half_, 2), one, zero);
    const Values quarters = {quarter(a, 0, 0), quarter(a, 0, 1), quarter(a, 1, 0),
                             quarter(a, 1, 1), rows_of(eye, 0),  rows_of(eye, 1)};
    const Values done = sweeps(quarters);
    Value* values = m_.builder().concatenate({diagonal_of(done[0]), diagonal_of(done[3])}, 1);
    Value* vectors = m_.builder().concatenate({done[4], done[5]}, 1);
    values = m_.mul(m_.builder().slice_dim(values, 1, 0, n_), scale);
    vectors = m_.builder().slice_dim(m_.builder().slice_dim(vectors, 1, 0, n_), 2, 0, n_);
    if (op_.as<EighAttrs>().sort && n_ > 1) {
      sort(values, vectors);
    }
    return {m_.unstack(m_.transpose(vectors), op_.type(0)), m_.unstack(values, op_.type(1))};
  }

 private:
  using Direction = CompareDirection;

  // Both triangles as the one that is read, with an even number of rows.
  Value* symmetric() {
    Value* a = m_.stack(op_.operands[0]);
    const auto read = op_.as<EighAttrs>().lower ? Direction::kGe : Direction::kLe;
    Value* kept = m_.compare_indices(read, n_, n_);
    a = m_.select(kept, a, m_.transpose(a));
    const int64_t more = 2 * half_ - n_;
    return m_.builder().pad(a, m_.builder().splat({m_.elem(), {}}, 0), {0, 0, 0}, {0, more, more});
  }

  Value* rows_of(Value* x, int64_t i) {
    return m_.builder().slice_dim(x, 1, i * half_, (i + 1) * half_);
  }
  Value* quarter(Value* x, int64_t i, int64_t j) {
    return m_.builder().slice_dim(rows_of(x, i), 2, j * half_, (j + 1) * half_);
  }

  Value* diagonal_of(Value* x) { return m_.sum(m_.select(diagonal_, x, m_.number(0)), 2); }

  // Sum of squares of each matrix: [batch, 1, 1].
  Value* squares(Value* x) { return m_.sum(m_.sum(m_.mul(x, x), 2), 1); }

  // Until nothing is left off the diagonal of any matrix. A NaN ends it.
  Values sweeps(const Values& start) {
    constexpr double kOfPairs = 0x1p-44;
    const auto& attrs = op_.as<EighAttrs>();
    const double tolerance =
        m_.elem() == Elem::kF64 ? std::min(attrs.tolerance, kOfPairs) : attrs.tolerance;
    Builder& b = m_.builder();
    const Type counter{Elem::kI32, {}};
    Values carried = start;
    carried.push_back(b.splat_int(counter, 0));
    Values out = m_.loop(
        carried,
        [&](const Values& at) {
          const auto off_diagonal = [&](Value* x) {
            return squares(m_.select(diagonal_, m_.number(0), x));
          };
          Value *lower = off_diagonal(at[3]), *upper = off_diagonal(at[0]);
          Value* beside = m_.add(upper, lower);
          Value *bottom_left = squares(at[2]), *top_right = squares(at[1]);
          beside = m_.add(m_.add(beside, top_right), bottom_left);
          Value *on_lower = squares(diagonal_of(at[3])), *on_upper = squares(diagonal_of(at[0]));
          Value* on = m_.add(on_upper, on_lower);
          Value* allowed = m_.number(tolerance * tolerance);
          Value* bound = m_.mul(m_.add(beside, on), allowed);
          Value* left = b.convert(m_.compare(Direction::kGt, beside, bound), Elem::kI32);
          Value* any = b.reshape(m_.reduce(Kind::kMaximum, left, 0, 0), {});
          Value* more = b.compare(Direction::kLt, at[6], b.splat_int(counter, attrs.max_sweeps));
          return b.logical_and(b.compare(Direction::kGt, any, b.splat_int(counter, 0)), more);
        },
        [&](const Values& at) {
          Values next(at.begin(), at.end() - 1);
          next = m_.repeat(2 * half_ - 1, next, [&](Value*, const Values& x) { return step(x); });
          next.push_back(b.add(at[6], b.splat_int(counter, 1)));
          return next;
        });
    out.pop_back();
    return out;
  }

  // The rotation that makes the element beside the diagonal of every pair zero.
  Rotation rotation(const Values& x) {
    Value* p = diagonal_of(x[0]);
    Value* q = diagonal_of(x[1]);
    Value* r = diagonal_of(x[3]);
    Value *zero = m_.number(0), *one = m_.number(1);
    Value *twice = m_.add(q, q), *gap = m_.sub(r, p);
    Value* tau = m_.div(gap, twice);
    Value* root = m_.unary(Kind::kSqrt, m_.add(one, m_.mul(tau, tau)));
    Value* size = m_.add(m_.unary(Kind::kAbs, tau), root);
    Value* t = m_.div(m_.where(Direction::kLt, tau, zero, m_.number(-1), one), size);
    t = m_.select(m_.compare(Direction::kEq, q, zero), zero, t);
    Value* c = m_.div(one, m_.unary(Kind::kSqrt, m_.add(one, m_.mul(t, t))));
    return {c, m_.mul(t, c), m_.sub(p, m_.mul(t, q)), m_.add(r, m_.mul(t, q))};
  }

  Value* first(Value* c, Value* s, Value* x, Value* y) {
    Value *of_y = m_.mul(s, y), *of_x = m_.mul(c, x);
    return m_.sub(of_x, of_y);
  }
  Value* second(Value* c, Value* s, Value* x, Value* y) {
    Value *of_y = m_.mul(c, y), *of_x = m_.mul(s, x);
    return m_.add(of_x, of_y);
  }

  Values step(const Values& x) {
    const Rotation r = rotation(x);
    Value *c = m_.turn(r.c), *s = m_.turn(r.s);
    Value *tl = first(r.c, r.s, x[0], x[2]), *tr = first(r.c, r.s, x[1], x[3]);
    Value *bl = second(r.c, r.s, x[0], x[2]), *br = second(r.c, r.s, x[1], x[3]);
    Value* zero = m_.number(0);
    const Values rotated = {m_.select(diagonal_, r.first, first(c, s, tl, tr)),
                            m_.select(diagonal_, zero, second(c, s, tl, tr)),
                            m_.select(diagonal_, zero, first(c, s, bl, br)),
                            m_.select(diagonal_, r.second, second(c, s, bl, br))};
    Values next = round(rotated[0], rotated[2], 1);  // left halves of all rows
    const Values right = round(rotated[1], rotated[3], 1);
    const Values upper = round(next[0], right[0], 2);
    const Values lower = round(next[1], right[1], 2);
    Value *right_half = second(r.c, r.s, x[4], x[5]), *left_half = first(r.c, r.s, x[4], x[5]);
    const Values vectors = round(left_half, right_half, 1);
    return {upper[0], upper[1], lower[0], lower[1], vectors[0], vectors[1]};
  }

  // One move of the tournament along `dim`; the first player stays.
  Values round(Value* upper, Value* lower, int64_t dim) {
    if (half_ == 1) {
      return {upper, lower};
    }
    Builder& b = m_.builder();
    Values up = {b.slice_dim(upper, dim, 0, 1), b.slice_dim(lower, dim, 0, 1)};
    if (half_ > 2) {
      up.push_back(b.slice_dim(upper, dim, 1, half_ - 1));
    }
    return {b.concatenate(up, dim), b.concatenate({b.slice_dim(lower, dim, 1, half_),
                                                   b.slice_dim(upper, dim, half_ - 1, half_)},
                                                  dim)};
  }

  // Ascending; rows of `vectors` go with their values.
  void sort(Value*& values, Value*& vectors) {
    Value* keys = m_.builder().broadcast(values, vectors->type.dims, {0, 1, 2});
    vectors = m_.sorted({keys, vectors}, 1)[1];
    values = m_.sorted({values}, 1)[0];
  }

  const Op& op_;
  Matrices m_;
  int64_t n_, half_;
  Value* diagonal_;
};

}  // namespace

std::vector<Value*> eigh(const Op& op, Rewriter& rw) { return Jacobi(op, rw).run(); }

}  // namespace tpu::compiler::legalization
