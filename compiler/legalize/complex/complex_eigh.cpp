// Eigenvalues and vectors of Hermitian matrices by Jacobi rotations of all pairs of rows at a time:
// the method of legalize/linalg/eigh.cpp. A pair [[p, q], [q*, r]] is turned by e = q / |q| first,
// so that its rotation is that of the real matrix [[p, |q|], [|q|, r]].
#include "legalize/complex/complex_matrices.hpp"
#include "legalize/complex/complex_ops.hpp"

namespace tpu::compiler {
namespace {

using legalization::Matrices;
using legalization::Values;

class HermitianJacobi {
 public:
  HermitianJacobi(const Op& op, Rewriter& rw)
      : op_(op),
        c_(rw),
        m_(c_.real),
        n_(op.type().dims.back()),
        half_((n_ + 1) / 2),
        diagonal_(m_.compare_indices(Direction::kEq, half_, half_)) {}

  std::vector<Complex> run(const Complex& matrix) {
    Complex a = hermitian(c_.stack(matrix));
    Value* size = c_.math.larger_part(a);
    Value* most = m_.reduce(Kind::kMaximum, size, 0, 2);
    Value* scale = m_.scale(m_.reduce(Kind::kMaximum, most, 0, 1));
    a = c_.div(a, scale);
    Value* rows = m_.indices(2 * half_, 1);
    Value* one = m_.builder().splat({Elem::kF32, {Matrices::dim(a.re, 0), 1, 1}}, 1);
    Value *zero = m_.number(0), *columns = m_.indices(2 * half_, 2);
    Value* eye = m_.where(Direction::kEq, rows, columns, one, zero);
    const Complex identity = {eye, m_.builder().zeros_like(eye)};
    const State done = sweeps({quarter(a, 0, 0), quarter(a, 0, 1), quarter(a, 1, 0),
                               quarter(a, 1, 1), rows_of(identity, 0), rows_of(identity, 1)});
    Builder& b = m_.builder();
    Value* values = b.concatenate({diagonal_of(done[0].re), diagonal_of(done[3].re)}, 1);
    values = m_.mul(b.slice_dim(values, 1, 0, n_), scale);
    Complex vectors = {own(b.concatenate({done[4].re, done[5].re}, 1)),
                       own(b.concatenate({done[4].im, done[5].im}, 1))};
    if (op_.as<EighAttrs>().sort && n_ > 1) {
      sort(values, vectors);
    }
    vectors = c_.math.conjugate(c_.transpose(vectors));
    return {c_.unstack(vectors, op_.type(0)), {m_.unstack(values, op_.type(1)), nullptr}};
  }

 private:
  using Direction = CompareDirection;
  // Four quarters of the matrix, two halves of what will be the vectors' conjugates as rows.
  using State = std::vector<Complex>;

  struct Rotation {
    Value *c, *s;           // [batch, h, 1]
    Complex e;              // [batch, h, 1]
    Value *first, *second;  // diagonal elements after it
  };

  // Both triangles as the one that is read, with an even number of rows.
  Complex hermitian(const Complex& a) {
    const auto read = op_.as<EighAttrs>().lower ? Direction::kGe : Direction::kLe;
    Value *rows = m_.indices(n_, 1), *columns = m_.indices(n_, 2);
    Complex out = c_.where(read, rows, columns, a, c_.math.conjugate(c_.transpose(a)));
    out.im = m_.where(Direction::kEq, rows, columns, m_.number(0), out.im);
    const int64_t more = 2 * half_ - n_;
    const auto padded = [&](Value* x) {
      return m_.builder().pad(x, m_.builder().splat({Elem::kF32, {}}, 0), {0, 0, 0},
                              {0, more, more});
    };
    return {padded(out.re), padded(out.im)};
  }

  // Without the row and column that made the size even.
  Value* own(Value* x) {
    return m_.builder().slice_dim(m_.builder().slice_dim(x, 1, 0, n_), 2, 0, n_);
  }
  Value* part(Value* x, int64_t dim, int64_t i) {
    return m_.builder().slice_dim(x, dim, i * half_, (i + 1) * half_);
  }
  Complex rows_of(const Complex& x, int64_t i) { return {part(x.re, 1, i), part(x.im, 1, i)}; }
  Complex quarter(const Complex& x, int64_t i, int64_t j) {
    const Complex rows = rows_of(x, i);
    return {part(rows.re, 2, j), part(rows.im, 2, j)};
  }

  Value* diagonal_of(Value* x) { return m_.sum(m_.select(diagonal_, x, m_.number(0)), 2); }
  Complex beside(const Complex& x) { return c_.select(diagonal_, c_.number(0), x); }

  // Sum of squares of each matrix: [batch, 1, 1].
  Value* squares(Value* x) { return m_.sum(m_.sum(m_.mul(x, x), 2), 1); }
  Value* squares(const Complex& x) {
    Value *im = squares(x.im), *re = squares(x.re);
    return m_.add(re, im);
  }

  static Values flat(const State& state) {
    Values out;
    for (const Complex& x : state) {
      out.push_back(x.re);
      out.push_back(x.im);
    }
    return out;
  }
  static State state_of(const Values& values) {
    State out;
    for (size_t i = 0; i + 1 < values.size(); i += 2) {
      out.push_back({values[i], values[i + 1]});
    }
    return out;
  }

  // True while something is left off the diagonal of a matrix. A NaN ends it.
  Value* goes_on(const Values& at) {
    const auto& attrs = op_.as<EighAttrs>();
    Builder& b = m_.builder();
    const Type counter{Elem::kI32, {}};
    const State x = state_of(at);
    Value *lower = squares(beside(x[3])), *upper = squares(beside(x[0]));
    Value* off = m_.add(upper, lower);
    Value *bottom_left = squares(x[2]), *top_right = squares(x[1]);
    off = m_.add(m_.add(off, top_right), bottom_left);
    Value *on_lower = squares(diagonal_of(x[3].re)), *on_upper = squares(diagonal_of(x[0].re));
    Value* on = m_.add(on_upper, on_lower);
    Value* tolerance = m_.number(attrs.tolerance * attrs.tolerance);
    Value* bound = m_.mul(m_.add(off, on), tolerance);
    Value* left = b.convert(m_.compare(Direction::kGt, off, bound), Elem::kI32);
    Value* any = b.reshape(m_.reduce(Kind::kMaximum, left, 0, 0), {});
    Value* more = b.compare(Direction::kLt, at.back(), b.splat_int(counter, attrs.max_sweeps));
    return b.logical_and(b.compare(Direction::kGt, any, b.splat_int(counter, 0)), more);
  }

  State sweeps(const State& start) {
    Builder& b = m_.builder();
    const Type counter{Elem::kI32, {}};
    Values carried = flat(start);
    carried.push_back(b.splat_int(counter, 0));
    Values out = m_.loop(
        carried, [&](const Values& at) { return goes_on(at); },
        [&](const Values& at) {
          Values next(at.begin(), at.end() - 1);
          next = m_.repeat(2 * half_ - 1, next,
                           [&](Value*, const Values& x) { return flat(step(state_of(x))); });
          next.push_back(b.add(at.back(), b.splat_int(counter, 1)));
          return next;
        });
    out.pop_back();
    return state_of(out);
  }

  Rotation rotation(const State& x) {
    Value* p = diagonal_of(x[0].re);
    Value* r = diagonal_of(x[3].re);
    const Complex q = {diagonal_of(x[1].re), diagonal_of(x[1].im)};
    Value* size = c_.math.absolute(q);
    Value *zero = m_.number(0), *one = m_.number(1);
    Value* none = m_.compare(Direction::kEq, size, zero);
    const Complex direction = c_.div(q, size), unit = c_.number(1);
    const Complex e = c_.select(none, unit, direction);
    Value *twice = m_.add(size, size), *gap = m_.sub(r, p);
    Value* tau = m_.div(gap, twice);
    Value* root = m_.unary(Kind::kSqrt, m_.add(one, m_.mul(tau, tau)));
    Value* below = m_.add(m_.unary(Kind::kAbs, tau), root);
    Value* t = m_.div(m_.where(Direction::kLt, tau, zero, m_.number(-1), one), below);
    t = m_.select(none, zero, t);
    Value* c = m_.div(one, m_.unary(Kind::kSqrt, m_.add(one, m_.mul(t, t))));
    return {c, m_.mul(t, c), e, m_.sub(p, m_.mul(t, size)), m_.add(r, m_.mul(t, size))};
  }

  Complex first(Value* c, Value* s, const Complex& x, const Complex& y) {
    const Complex of_y = c_.mul(y, s), of_x = c_.mul(x, c);
    return c_.sub(of_x, of_y);
  }
  Complex second(Value* c, Value* s, const Complex& x, const Complex& y) {
    const Complex of_y = c_.mul(y, c), of_x = c_.mul(x, s);
    return c_.add(of_x, of_y);
  }

  State step(const State& x) {
    const Rotation r = rotation(x);
    const auto turned = [&](const Complex& y) { return c_.mul(y, r.e); };
    const Complex bottom_left = turned(x[2]), bottom_right = turned(x[3]);
    const Complex tl = first(r.c, r.s, x[0], bottom_left), bl = second(r.c, r.s, x[0], bottom_left);
    Value *c = m_.turn(r.c), *s = m_.turn(r.s);
    const Complex e = c_.math.conjugate({m_.turn(r.e.re), m_.turn(r.e.im)});
    const Complex tr = c_.mul(first(r.c, r.s, x[1], bottom_right), e);
    const Complex br = c_.mul(second(r.c, r.s, x[1], bottom_right), e);
    const auto on_diagonal = [&](Value* v, const Complex& y) {
      return c_.select(diagonal_, {v, m_.number(0)}, y);
    };
    const State rotated = {on_diagonal(r.first, first(c, s, tl, tr)), beside(second(c, s, tl, tr)),
                           beside(first(c, s, bl, br)),
                           on_diagonal(r.second, second(c, s, bl, br))};
    const State left = round(rotated[0], rotated[2], 1);  // left halves of all rows
    const State right = round(rotated[1], rotated[3], 1);
    const State upper = round(left[0], right[0], 2);
    const State lower = round(left[1], right[1], 2);
    const Complex y = turned(x[5]);
    const Complex right_half = second(r.c, r.s, x[4], y), left_half = first(r.c, r.s, x[4], y);
    const State vectors = round(left_half, right_half, 1);
    return {upper[0], upper[1], lower[0], lower[1], vectors[0], vectors[1]};
  }

  // One move of the tournament along `dim`; the first player stays.
  State round(const Complex& upper, const Complex& lower, int64_t dim) {
    if (half_ == 1) {
      return {upper, lower};
    }
    Builder& b = m_.builder();
    const auto moved = [&](Value* u, Value* l) -> Values {
      Values up = {b.slice_dim(u, dim, 0, 1), b.slice_dim(l, dim, 0, 1)};
      if (half_ > 2) {
        up.push_back(b.slice_dim(u, dim, 1, half_ - 1));
      }
      return {b.concatenate(up, dim),
              b.concatenate({b.slice_dim(l, dim, 1, half_), b.slice_dim(u, dim, half_ - 1, half_)},
                            dim)};
    };
    const Values re = moved(upper.re, lower.re), im = moved(upper.im, lower.im);
    return {{re[0], im[0]}, {re[1], im[1]}};
  }

  // Ascending; rows of `vectors` go with their values.
  void sort(Value*& values, Complex& vectors) {
    Value* keys = m_.builder().broadcast(values, vectors.re->type.dims, {0, 1, 2});
    const Values out = m_.sorted({keys, vectors.re, vectors.im}, 1);
    vectors = {out[1], out[2]};
    values = m_.sorted({values}, 1)[0];
  }

  const Op& op_;
  ComplexMatrices c_;
  Matrices& m_;
  int64_t n_, half_;
  Value* diagonal_;
};

}  // namespace

std::vector<Complex> complex_eigh(const Op& op, const Complex& a, Rewriter& rw) {
  return HermitianJacobi(op, rw).run(a);
}

}  // namespace tpu::compiler
