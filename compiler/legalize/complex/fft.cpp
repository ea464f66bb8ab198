// See fft.hpp. Transforms are along the last dimension; `sign` is that of the exponent.
#include "legalize/complex/fft.hpp"

#include <algorithm>
#include <numbers>
#include <numeric>

#include "legalize/complex/fourier_tables.hpp"

namespace tpu::compiler {
namespace {

using Roots = std::vector<std::complex<double>>;

// Tables of more elements are computed by the program: its file and the transfers stay small.
constexpr int64_t kMostTableElements = int64_t{1} << 16;
// Eight times an index must fit i32.
constexpr int64_t kMostPoints = (int64_t{1} << 28) - 1;

class Fourier {
 public:
  explicit Fourier(Rewriter& rw) : rw_(rw), b_(rw), math_(rw) {}

  Complex run(const FftAttrs& attrs, Complex x) {
    const size_t rank = attrs.length.size();
    const int sign = attrs.type == FftType::kIfft || attrs.type == FftType::kIrfft ? 1 : -1;
    if (attrs.type == FftType::kRfft) {
      x = real_input(x.re, attrs.length.back());
    } else if (attrs.type == FftType::kFft || attrs.type == FftType::kIfft) {
      x = whole(x, sign, {true, true});
    }
    for (size_t back = 1; back < rank; ++back) {
      x = along(x, back, sign);
    }
    if (attrs.type == FftType::kIrfft) {
      return {real_output(x, attrs.length.back()), nullptr};
    }
    return x;
  }

 private:
  struct Wanted {
    bool re, im;
  };

  static int64_t last(const Value* x) { return x->type.dims.back(); }
  static double norm(int64_t n, int sign) { return sign > 0 ? 1.0 / static_cast<double>(n) : 1.0; }

  // Along the last dimension, with the norm of an inverse.
  Complex whole(const Complex& x, int sign, Wanted wanted) {
    const int64_t n = last(x.re);
    return transform(x, sign, norm(n, sign), wanted);
  }

  // Along the dimension that stands `back` before the last.
  Complex along(const Complex& x, size_t back, int sign) {
    const size_t rank = x.re->type.dims.size();
    Dims order(rank);
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[rank - 1], order[rank - 1 - back]);
    const auto turned = [&](const Complex& v) {
      return Complex{b_.transpose(v.re, order), b_.transpose(v.im, order)};
    };
    return turned(whole(turned(x), sign, {true, true}));
  }

  Complex transform(const Complex& x, int sign, double scale, Wanted wanted) {
    const int64_t n = last(x.re);
    if (n > kMostPoints) {
      throw Error("a transform of " + std::to_string(n) +
                  " points is too long; at most 2^28 - 1 are possible");
    }
    if (n == 1) {
      return {x.re, x.im == nullptr ? b_.zeros_like(x.re) : x.im};
    }
    const int64_t factor = fourier::first_factor(n);
    if (factor == n) {
      return product(x, x.re->type.rank() - 1, table({n, n}, fourier::matrix(n, n, n, sign, scale)),
                     wanted);
    }
    return factor == 0 ? by_chirp(x, sign, scale) : by_factors(x, factor, sign, scale, wanted);
  }

  // n = factor * rest, x[i1, i2], y[k1 + factor k2].
  Complex by_factors(const Complex& x, int64_t factor, int sign, double scale, Wanted wanted) {
    const int64_t n = last(x.re);
    const Complex first = first_level(x, factor, factor, sign, scale);  // [.., i2, k1]
    const Complex y = last_level(first, sign, wanted);                  // [.., k1, k2]
    const auto flat = [&](Value* v) {
      if (v == nullptr) {
        return v;
      }
      Dims dims = v->type.dims;
      dims.pop_back();
      dims.back() = n;
      return b_.reshape(turned(v), dims);
    };
    return {flat(y.re), flat(y.im)};
  }

  // The product over i1 for k1 < kept, and the twiddles.
  Complex first_level(const Complex& x, int64_t factor, int64_t kept, int sign, double scale) {
    const int64_t n = last(x.re);
    const int64_t rest = n / factor;
    const auto cut = [&](Value* v) {
      if (v == nullptr) {
        return v;
      }
      Dims dims = v->type.dims;
      dims.back() = factor;
      dims.push_back(rest);
      return b_.reshape(v, dims);
    };
    const Complex pieces = {cut(x.re), cut(x.im)};
    const Complex f = table({factor, kept}, fourier::matrix(factor, kept, factor, sign, scale));
    const Complex y = product(pieces, pieces.re->type.rank() - 2, f, {true, true});
    const Complex w = twiddles(rest, kept, n, sign);
    const int64_t rank = y.re->type.rank();
    const auto spread = [&](Value* v) {
      return b_.broadcast(v, y.re->type.dims, {rank - 2, rank - 1});
    };
    return math_.multiply(y, {spread(w.re), spread(w.im)});
  }

  // Over i2 of [.., i2, k1].
  Complex last_level(const Complex& x, int sign, Wanted wanted) {
    const int64_t rank = x.re->type.rank();
    const int64_t rest = x.re->type.dims[static_cast<size_t>(rank) - 2];
    if (fourier::first_factor(rest) == rest) {
      return product(x, rank - 2, table({rest, rest}, fourier::matrix(rest, rest, rest, sign, 1)),
                     wanted);
    }
    return transform({turned(x.re), turned(x.im)}, sign, 1, wanted);
  }

  // With the last two dimensions exchanged.
  Value* turned(Value* v) {
    Dims order(v->type.dims.size());
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[order.size() - 1], order[order.size() - 2]);
    return b_.transpose(v, order);
  }

  Value* dot(Value* x, int64_t dim, Value* matrix) {
    DotAttrs attrs;
    attrs.lhs_contract = {dim};
    attrs.rhs_contract = {0};
    attrs.lhs_precision = attrs.rhs_precision = Precision::kHighest;
    Type type = x->type;
    type.dims.erase(type.dims.begin() + dim);
    type.dims.push_back(last(matrix));
    return rw_.make(Kind::kDotGeneral, {x, matrix}, type, attrs);
  }

  // Sums over `dim`; the dimension of the matrix's columns is the last of the result.
  Complex product(const Complex& x, int64_t dim, const Complex& m, Wanted wanted) {
    Complex out;
    if (wanted.re) {
      out.re = dot(x.re, dim, m.re);
      out.re = x.im == nullptr ? out.re : b_.sub(out.re, dot(x.im, dim, m.im));
    }
    if (wanted.im) {
      out.im = dot(x.re, dim, m.im);
      out.im = x.im == nullptr ? out.im : b_.add(out.im, dot(x.im, dim, m.re));
    }
    return out;
  }

  Complex table(const Dims& dims, const Roots& roots) {
    std::vector<float> re, im;
    for (const auto& root : roots) {
      re.push_back(static_cast<float>(root.real()));
      im.push_back(static_cast<float>(root.imag()));
    }
    const Type type{Elem::kF32, dims};
    return {rw_.constant(make_dense_of(type, re)), rw_.constant(make_dense_of(type, im))};
  }

  // [rows, columns]: e^(sign 2 pi i r c / n), r c < n.
  Complex twiddles(int64_t rows, int64_t columns, int64_t n, int sign) {
    return rows * columns <= kMostTableElements
               ? table({rows, columns}, fourier::matrix(rows, columns, n, sign, 1))
               : computed_twiddles(rows, columns, n, sign);
  }

  // As fourier::root_of_unity does, with the angle below pi / 4 rounded once.
  Complex computed_twiddles(int64_t rows, int64_t columns, int64_t n, int sign) {
    const Type index{Elem::kI32, {rows, columns}};
    const auto whole_number = [&](int64_t v) { return b_.splat_int(index, v); };
    const auto above = [&](Value* v, int64_t bound) {
      return b_.compare(CompareDirection::kGt, v, whole_number(bound));
    };
    const auto fold = [&](Value* where, Value* v, int64_t from) {
      return b_.select(where, b_.sub(whole_number(from), v), v);
    };
    Value *columns_at = b_.iota(index, 1), *rows_at = b_.iota(index, 0);
    Value* m = b_.mul(rows_at, columns_at);
    Value* below = above(m, n / 2);
    Value* eight = whole_number(8);  // of 8 n for the whole circle
    m = b_.mul(fold(below, m, n), eight);
    Value* left = above(m, 2 * n);
    m = fold(left, m, 4 * n);
    Value* steep = above(m, n);
    m = fold(steep, m, 2 * n);
    Value* angle = b_.convert(m, Elem::kF32);
    angle = b_.mul(angle, b_.splat(angle->type, std::numbers::pi / 4 / static_cast<double>(n)));
    Value* cosine = b_.unary(Kind::kCosine, angle);
    Value* sine = b_.unary(Kind::kSine, angle);
    Value* re = b_.select(steep, sine, cosine);
    Value* im = b_.select(steep, cosine, sine);
    const auto negative = [&](Value* v) { return b_.unary(Kind::kNegate, v); };
    re = b_.select(left, negative(re), re);
    im = sign > 0 ? b_.select(below, negative(im), im) : b_.select(below, im, negative(im));
    return {re, im};
  }

  // i k = (i^2 + k^2 - (k - i)^2) / 2 makes a convolution of the transform.
  Complex by_chirp(const Complex& x, int sign, double scale) {
    const int64_t n = last(x.re);
    int64_t size = 1;
    while (size < 2 * n - 1) {
      size *= 2;
    }
    const int64_t dim = x.re->type.rank() - 1;
    const auto spread = [&](const Complex& v, const Dims& dims) {
      return Complex{b_.broadcast(v.re, dims, {dim}), b_.broadcast(v.im, dims, {dim})};
    };
    const Complex w = table({n}, fourier::chirp(n, sign));
    const Complex chirp = spread(w, x.re->type.dims);
    Complex y = x.im == nullptr ? math_.scale(chirp, x.re) : math_.multiply(x, chirp);
    Dims none(x.re->type.dims.size(), 0);
    const Dims more = with_dim(none, dim, size - n);
    Value* zero = b_.splat({Elem::kF32, {}}, 0);
    y = {b_.pad(y.re, zero, none, more), b_.pad(y.im, zero, none, more)};
    y = transform(y, -1, 1, {true, true});
    const auto spectrum = fourier::chirp_spectrum(n, size, sign, scale / static_cast<double>(size));
    y = math_.multiply(y, spread(table({size}, spectrum), y.re->type.dims));
    y = transform(y, 1, 1, {true, true});
    y = {b_.slice_dim(y.re, dim, 0, n), b_.slice_dim(y.im, dim, 0, n)};
    return math_.multiply(y, chirp);
  }

  // The first n / 2 + 1 points of the transform of real numbers.
  Complex real_input(Value* x, int64_t n) {
    const int64_t dim = x->type.rank() - 1;
    const int64_t kept = n / 2 + 1;
    const int64_t factor = fourier::first_factor(n);
    if (factor == n) {
      return product({x, nullptr}, dim, table({n, kept}, fourier::matrix(n, kept, n, -1, 1)),
                     {true, true});
    }
    const Complex y = factor == 0 ? transform({x, nullptr}, -1, 1, {true, true})
                                  : by_factors_of_real(x, n, factor);
    return {b_.slice_dim(y.re, dim, 0, kept), b_.slice_dim(y.im, dim, 0, kept)};
  }

  // y[n - k] is the conjugate of y[k]: half of the k1 do, and give the others turned around.
  Complex by_factors_of_real(Value* x, int64_t n, int64_t factor) {
    const int64_t kept = factor / 2 + 1;
    const Complex first = first_level({x, nullptr}, factor, kept, -1, 1);
    const Complex y = last_level(first, -1, {true, true});  // [.., k1, k2]
    const int64_t k1 = y.re->type.rank() - 2;
    const auto completed = [&](Value* v, bool negate) {
      Value* others = b_.slice_dim(v, k1, 1, (factor + 1) / 2);
      others = b_.reverse(others, {k1, k1 + 1});
      others = negate ? b_.unary(Kind::kNegate, others) : others;
      Value* all = factor > 2 ? b_.concatenate({v, others}, k1) : v;
      Dims dims = all->type.dims;
      dims.pop_back();
      dims.back() = n;
      return b_.reshape(turned(all), dims);
    };
    return {completed(y.re, false), completed(y.im, true)};
  }

  // n real numbers of n / 2 + 1 points.
  Value* real_output(const Complex& x, int64_t n) {
    const int64_t dim = x.re->type.rank() - 1;
    const int64_t given = n / 2 + 1;
    if (fourier::first_factor(n) == n) {
      Roots roots = fourier::matrix(given, n, n, 1, 1.0 / static_cast<double>(n));
      for (int64_t r = 1; 2 * r < n; ++r) {  // points that stand for two
        std::for_each(roots.begin() + r * n, roots.begin() + (r + 1) * n,
                      [](auto& root) { root *= 2; });
      }
      return product(x, dim, table({given, n}, roots), {true, false}).re;
    }
    const auto completed = [&](Value* v, bool negate) {
      Value* others = b_.reverse(b_.slice_dim(v, dim, 1, (n + 1) / 2), {dim});
      return b_.concatenate({v, negate ? b_.unary(Kind::kNegate, others) : others}, dim);
    };
    return whole({completed(x.re, false), completed(x.im, true)}, 1, {true, false}).re;
  }

  Rewriter& rw_;
  Builder b_;
  ComplexMath math_;
};

}  // namespace

Complex fourier_transform(const Op& op, const Complex& x, Rewriter& rw) {
  const auto& attrs = op.as<FftAttrs>();
  if (op.type().count() == 0 || op.operand_type(0).count() == 0) {
    const Type part{Elem::kF32, op.type().dims};
    Builder b(rw);
    return {b.splat(part, 0), b.splat(part, 0)};
  }
  // Complex numbers that were made of real ones are transformed as these.
  const bool forward_first = attrs.type == FftType::kFft || attrs.type == FftType::kIfft;
  const bool is_real = forward_first && is_zero(x.im);
  return Fourier(rw).run(attrs, is_real ? Complex{x.re, nullptr} : x);
}

}  // namespace tpu::compiler
