// Factors of complex matrices: products of what was made give the matrix back.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "complex_numbers.hpp"
#include "graph_builder.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "legalize/complex/split_complex.hpp"
#include "legalize/linalg/linalg.hpp"

namespace tpu::compiler {
namespace {

using test::c64;
using test::Exact;
using test::expect_near;
using test::GraphBuilder;
using test::Number;
using test::Numbers;
using test::random_numbers;
using test::tensor;

constexpr int64_t kRows = 7;

std::vector<Numbers> factors(Kind kind, const std::vector<Numbers>& args,
                             const std::vector<Type>& types, Attrs attrs) {
  GraphBuilder b;
  std::vector<Value*> values;
  for (const Numbers& arg : args) {
    const auto columns = static_cast<int64_t>(arg.size()) / kRows;
    values.push_back(b.arg(columns == 1 ? c64({kRows}) : c64({kRows, columns})));
  }
  Op* op = b.region().append(kind, values, types, std::move(attrs), unknown_loc());
  std::vector<Value*> results;
  for (const auto& r : op->results) {
    results.push_back(r.get());
  }
  Module& m = b.done(results);
  verify(m);
  EXPECT_TRUE(split_complex(m));
  expand_linalg(m);
  m.number_ops();
  verify(m);
  std::vector<Tensor> in;
  for (size_t i = 0; i < args.size(); ++i) {
    in.push_back(tensor(m.main->body.args[i]->type, args[i]));
  }
  std::vector<Numbers> out;
  const std::vector<Tensor> made = interpret(m, {in})[0];
  for (const Tensor& t : made) {
    out.push_back(t.type.elem == Elem::kF32 && t.type.rank() > 1 ? test::values<Number>(t)
                                                                 : Numbers());
    if (out.back().empty() && t.type.elem == Elem::kF32) {
      for (const float v : test::values<float>(t)) {
        out.back().emplace_back(v);
      }
    }
    if (t.type.elem == Elem::kI32) {
      for (const int32_t v : test::values<int32_t>(t)) {
        out.back().emplace_back(static_cast<float>(v));
      }
    }
  }
  return out;
}

Exact at(const Numbers& m, int64_t row, int64_t column) {
  return m[static_cast<size_t>(row * kRows + column)];
}

Numbers square_matrix(const std::function<Exact(int64_t, int64_t)>& element) {
  Numbers out;
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kRows; ++c) {
      out.emplace_back(element(r, c));
    }
  }
  return out;
}

Numbers product(const Numbers& a, const Numbers& b) {
  return square_matrix([&](int64_t r, int64_t c) {
    Exact sum = 0;
    for (int64_t k = 0; k < kRows; ++k) {
      sum += at(a, r, k) * at(b, k, c);
    }
    return sum;
  });
}

Numbers adjoint(const Numbers& a) {
  return square_matrix([&](int64_t r, int64_t c) { return std::conj(at(a, c, r)); });
}

Numbers triangle(const Numbers& a, bool lower, bool unit) {
  return square_matrix([&](int64_t r, int64_t c) {
    return r == c && unit ? Exact(1) : (lower ? r >= c : r <= c) ? at(a, r, c) : Exact(0);
  });
}

void expect_equal_matrices(const Numbers& made, const Numbers& wanted, double bound = 2e-6) {
  expect_near(made, std::vector<Exact>(wanted.begin(), wanted.end()), bound);
}

const Type kMatrix = c64({kRows, kRows});

TEST(ComplexMatrices, CholeskyReadsOneTriangle) {
  const Numbers a = random_numbers(kRows * kRows, 11);
  const Numbers positive = product(a, adjoint(a));
  for (const bool lower : {true, false}) {
    Numbers half = square_matrix([&](int64_t r, int64_t c) {
      return r == c || (r > c) == lower ? at(positive, r, c) : Exact(std::nan(""), std::nan(""));
    });
    half[0].imag(3);  // of the diagonal the imaginary part is not read
    const Numbers factor = factors(Kind::kCholesky, {half}, {kMatrix}, CholeskyAttrs{lower})[0];
    expect_equal_matrices(
        lower ? product(factor, adjoint(factor)) : product(adjoint(factor), factor), positive,
        1e-5);
    EXPECT_EQ(factor, triangle(factor, lower, false));
  }
}

TEST(ComplexMatrices, TriangularSystemsInAllForms) {
  const Numbers a = square_matrix([&](int64_t r, int64_t c) {
    return Exact(random_numbers(kRows * kRows, 12)[static_cast<size_t>(r * kRows + c)]) * 0.3 +
           (r == c ? Exact(1, 1) : Exact(0));
  });
  const Numbers b = random_numbers(kRows * kRows, 13);
  for (int form = 0; form < 24; ++form) {
    SCOPED_TRACE(form);
    TriangularSolveAttrs attrs;
    attrs.left = (form & 1) != 0;
    attrs.lower = (form & 2) != 0;
    attrs.unit_diagonal = (form & 4) != 0;
    attrs.transpose = form >= 8;
    attrs.conjugate = form >= 16;
    const Numbers x = factors(Kind::kTriangularSolve, {a, b}, {kMatrix}, attrs)[0];
    Numbers used = triangle(a, attrs.lower, attrs.unit_diagonal);
    if (attrs.transpose) {
      const Numbers turned = adjoint(used);
      used = square_matrix([&](int64_t r, int64_t c) {
        return attrs.conjugate ? at(turned, r, c) : std::conj(at(turned, r, c));
      });
    }
    expect_equal_matrices(attrs.left ? product(used, x) : product(x, used), b, 1e-5);
  }
}

TEST(ComplexMatrices, LuFactorsGiveTheRowsBackInTheirOrder) {
  const Numbers a = random_numbers(kRows * kRows, 14);
  const auto out =
      factors(Kind::kLu, {a}, {kMatrix, {Elem::kI32, {kRows}}, {Elem::kI32, {kRows}}}, NoAttrs{});
  const Numbers rows = square_matrix([&](int64_t r, int64_t c) {
    return at(a, static_cast<int64_t>(out[2][static_cast<size_t>(r)].real()), c);
  });
  expect_equal_matrices(product(triangle(out[0], true, true), triangle(out[0], false, false)),
                        rows);
}

TEST(ComplexMatrices, ReflectorsMakeAUnitaryFactor) {
  const Numbers a = random_numbers(kRows * kRows, 15);
  const auto qr = factors(Kind::kQr, {a}, {kMatrix, c64({kRows})}, NoAttrs{});
  const Numbers q = factors(Kind::kHouseholderProduct, {qr[0], qr[1]}, {kMatrix}, NoAttrs{})[0];
  expect_equal_matrices(product(q, triangle(qr[0], false, false)), a);
  expect_equal_matrices(product(adjoint(q), q),
                        square_matrix([](int64_t r, int64_t c) { return Exact(r == c ? 1 : 0); }));
  for (int64_t i = 0; i < kRows; ++i) {
    EXPECT_EQ(at(qr[0], i, i).imag(), 0);  // as LAPACK has it
  }
}

// Also where eigenvalues are equal.
TEST(ComplexMatrices, EigenvectorsAreUnitary) {
  const Numbers a = random_numbers(kRows * kRows, 16);
  const Numbers positive = product(a, adjoint(a));
  const Numbers equal = square_matrix([](int64_t r, int64_t c) {
    return r == c ? Exact(2) : r / 2 == c / 2 ? Exact(0, r < c ? 1 : -1) : Exact(0);
  });
  for (const Numbers& m : {positive, equal}) {
    const auto out = factors(Kind::kEigh, {m}, {kMatrix, {Elem::kF32, {kRows}}},
                             EighAttrs{true, true, 100, 1e-6});
    const Numbers scaled = square_matrix([&](int64_t r, int64_t c) {
      return at(out[0], r, c) * static_cast<double>(out[1][static_cast<size_t>(c)].real());
    });
    expect_equal_matrices(product(scaled, adjoint(out[0])), m, 5e-6);
    expect_equal_matrices(product(adjoint(out[0]), out[0]),
                          square_matrix([](int64_t r, int64_t c) { return Exact(r == c ? 1 : 0); }),
                          5e-6);
    for (size_t i = 1; i < kRows; ++i) {
      EXPECT_LE(out[1][i - 1].real(), out[1][i].real());
    }
  }
}

}  // namespace
}  // namespace tpu::compiler
