// Pass `linalg`: what the loops compute has the properties that define a factorisation, in f64
// sums over the factors; two matrices in each batch.
#include "legalize/linalg/linalg.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "graph_builder.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "legalize/legalize.hpp"
#include "tensors.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::i32;
using test::values;
using testing::Each;
using testing::ElementsAre;

constexpr int64_t kBatch = 2;
constexpr double kNear = 5e-6;

// Matrices of one batch, row-major.
struct Stack {
  int64_t rows = 0, columns = 0;
  std::vector<float> data;

  double at(int64_t k, int64_t i, int64_t j) const {
    return data[static_cast<size_t>((k * rows + i) * columns + j)];
  }
};

Stack make(int64_t rows, int64_t columns,
           const std::function<double(int64_t, int64_t, int64_t)>& element) {
  Stack s{rows, columns, {}};
  for (int64_t k = 0; k < kBatch; ++k) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        s.data.push_back(static_cast<float>(element(k, i, j)));
      }
    }
  }
  return s;
}

Stack random(int64_t rows, int64_t columns) {
  uint32_t state = static_cast<uint32_t>(rows * 31 + columns);
  return make(rows, columns, [&](int64_t, int64_t, int64_t) {
    state = state * 1664525 + 1013904223;
    return static_cast<double>(state >> 8) / (1 << 23) - 1;
  });
}

Stack transpose(const Stack& a) {
  return make(a.columns, a.rows, [&](int64_t k, int64_t i, int64_t j) { return a.at(k, j, i); });
}

Stack product(const Stack& a, const Stack& b) {
  return make(a.rows, b.columns, [&](int64_t k, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t t = 0; t < a.columns; ++t) {
      sum += a.at(k, i, t) * b.at(k, t, j);
    }
    return sum;
  });
}

Stack identity(int64_t n) {
  return make(n, n, [](int64_t, int64_t i, int64_t j) { return i == j ? 1.0 : 0.0; });
}

// Symmetric; positive definite for `shift` of 1 or more.
Stack symmetric(int64_t n, double shift) {
  const Stack a = random(n, n);
  const Stack p = product(a, transpose(a));
  return make(
      n, n, [&](int64_t k, int64_t i, int64_t j) { return p.at(k, i, j) + (i == j ? shift : 0); });
}

// The triangle on and below the diagonal (or above), zeros elsewhere.
Stack triangle(const Stack& a, bool lower, bool unit = false) {
  return make(a.rows, a.columns, [&](int64_t k, int64_t i, int64_t j) {
    return unit && i == j ? 1.0 : (lower ? i >= j : i <= j) ? a.at(k, i, j) : 0.0;
  });
}

void expect_near(const Stack& ours, const Stack& theirs) {
  ASSERT_EQ(ours.data.size(), theirs.data.size());
  for (size_t i = 0; i < ours.data.size(); ++i) {
    EXPECT_NEAR(ours.data[i], theirs.data[i], kNear) << "element " << i;
  }
}

// One op, expanded and legalised, evaluated.
std::vector<Tensor> run(Kind kind, const std::vector<Stack>& in, const std::vector<Type>& out,
                        const Attrs& attrs = NoAttrs{}) {
  GraphBuilder b;
  std::vector<Value*> args;
  std::vector<Tensor> data;
  for (const Stack& s : in) {
    const Dims dims = s.columns == 0 ? Dims{kBatch, s.rows} : Dims{kBatch, s.rows, s.columns};
    args.push_back(b.arg(f32(dims)));
    data.push_back(test::tensor<float>(f32(dims), s.data));
  }
  const Op* op = b.region().append(kind, args, out, attrs, unknown_loc());
  std::vector<Value*> results;
  for (const auto& r : op->results) {
    results.push_back(r.get());
  }
  Module& m = b.done(results);
  verify(m);
  EXPECT_TRUE(expand_linalg(m));
  legalize(m);
  m.number_ops();
  verify(m);
  return interpret(m, {data})[0];
}

Type matrices(int64_t rows, int64_t columns) { return f32({kBatch, rows, columns}); }

Stack stack(const Tensor& t) {
  const bool vectors = t.type.rank() == 2;
  return {t.type.dims[1], vectors ? 0 : t.type.dims[2], values<float>(t)};
}

TEST(Linalg, CholeskyIsTheFactorOfEitherTriangle) {
  const Stack a = symmetric(5, 1);
  for (const bool lower : {true, false}) {
    // The other triangle is never read.
    Stack half = triangle(a, lower);
    const Stack c = stack(run(Kind::kCholesky, {half}, {matrices(5, 5)}, CholeskyAttrs{lower})[0]);
    expect_near(lower ? product(c, transpose(c)) : product(transpose(c), c), a);
    expect_near(triangle(c, lower), c);
  }
}

TEST(Linalg, CholeskyOfWhatIsNotPositiveIsNaNInThatMatrixAlone) {
  Stack a = symmetric(3, 1);
  a.data[4] = -1;
  const Stack c = stack(run(Kind::kCholesky, {a}, {matrices(3, 3)}, CholeskyAttrs{true})[0]);
  const std::vector<float> first(c.data.begin(), c.data.begin() + 9);
  const std::vector<float> second(c.data.begin() + 9, c.data.end());
  EXPECT_THAT(first, Each(testing::NanSensitiveFloatEq(std::nanf(""))));
  EXPECT_THAT(second, Each(testing::Not(testing::NanSensitiveFloatEq(std::nanf("")))));
}

TEST(Linalg, TriangularSolveInAllForms) {
  // Small beside the diagonal: well conditioned with a diagonal of ones too.
  const Stack full = make(
      4, 4, [a = symmetric(4, 2)](int64_t k, int64_t i, int64_t j) { return a.at(k, i, j) / 4; });
  for (int form = 0; form < 16; ++form) {
    const TriangularSolveAttrs attrs{(form & 1) != 0, (form & 2) != 0, (form & 4) != 0,
                                     (form & 8) != 0};
    const Stack b = attrs.left ? random(4, 3) : random(3, 4);
    const Stack x =
        stack(run(Kind::kTriangularSolve, {full, b}, {matrices(b.rows, b.columns)}, attrs)[0]);
    Stack a = triangle(full, attrs.lower, attrs.unit_diagonal);
    a = attrs.transpose ? transpose(a) : a;
    SCOPED_TRACE(form);
    const Stack back = attrs.left ? product(a, x) : product(x, a);
    expect_near(back, b);
  }
}

TEST(Linalg, TriangularSolveOfASingularMatrixKeepsWhatIsSolved) {
  const Stack a{2, 2, {2, 0, 1, 0, 2, 0, 1, 0}};
  const Stack b{2, 1, {4, 3, 4, 3}};
  const auto x = values<float>(run(Kind::kTriangularSolve, {a, b}, {matrices(2, 1)},
                                   TriangularSolveAttrs{true, true, false, false})[0]);
  EXPECT_THAT(x, ElementsAre(2, INFINITY, 2, INFINITY));
}

TEST(Linalg, QrAndTheProductOfItsReflectors) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{6, 4}, {4, 4}, {3, 5}, {1, 1}}) {
    SCOPED_TRACE(rows);
    const int64_t steps = std::min(rows, columns);
    const Stack a = random(rows, columns);
    const auto packed = run(Kind::kQr, {a}, {matrices(rows, columns), f32({kBatch, steps})});
    const Stack p = stack(packed[0]);
    const Stack reflectors =
        make(rows, steps, [&](int64_t k, int64_t i, int64_t j) { return p.at(k, i, j); });
    const Stack taus{steps, 0, values<float>(packed[1])};
    const Stack q =
        stack(run(Kind::kHouseholderProduct, {reflectors, taus}, {matrices(rows, steps)})[0]);
    const Stack r = make(steps, columns, [&](int64_t k, int64_t i, int64_t j) {
      return i <= j ? p.at(k, i, j) : 0.0;
    });
    expect_near(product(transpose(q), q), identity(steps));
    expect_near(product(q, r), a);
  }
}

TEST(Linalg, SizesNearTheEndsOfTheRange) {
  for (const double size : {0x1p-100, 0x1p100}) {  // squares are out of range
    SCOPED_TRACE(size);
    const auto sized = [&](const Stack& s) {
      return make(s.rows, s.columns,
                  [&](int64_t k, int64_t i, int64_t j) { return s.at(k, i, j) * size; });
    };
    const std::vector<Type> factors = {matrices(4, 3), f32({kBatch, 3})};
    const auto packed = run(Kind::kQr, {random(4, 3)}, factors);
    const auto packed_sized = run(Kind::kQr, {sized(random(4, 3))}, factors);
    EXPECT_EQ(values<float>(packed[1]), values<float>(packed_sized[1]));
    const std::vector<Type> both = {matrices(4, 4), f32({kBatch, 4})};
    const auto own = run(Kind::kEigh, {symmetric(4, 1)}, both, EighAttrs{});
    const auto own_sized = run(Kind::kEigh, {sized(symmetric(4, 1))}, both, EighAttrs{});
    EXPECT_EQ(values<float>(own[0]), values<float>(own_sized[0]));
    for (size_t i = 0; i < values<float>(own[1]).size(); ++i) {
      EXPECT_EQ(values<float>(own[1])[i] * size, values<float>(own_sized[1])[i]);
    }
  }
}

TEST(Linalg, QrOfATriangleChangesNothing) {
  const Stack a = triangle(random(3, 3), false);
  const auto packed = run(Kind::kQr, {a}, {matrices(3, 3), f32({kBatch, 3})});
  EXPECT_EQ(values<float>(packed[0]), a.data);
  EXPECT_THAT(values<float>(packed[1]), Each(0.0f));
}

TEST(Linalg, LuTakesTheLargestPivotOfEachColumn) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{5, 5}, {5, 3}, {3, 5}}) {
    SCOPED_TRACE(columns);
    const int64_t steps = std::min(rows, columns);
    const Stack a = random(rows, columns);
    const auto out =
        run(Kind::kLu, {a}, {matrices(rows, columns), i32({kBatch, steps}), i32({kBatch, rows})});
    const Stack lu = stack(out[0]);
    const auto swaps = values<int32_t>(out[1]);
    const auto order = values<int32_t>(out[2]);
    const Stack l = make(rows, steps, [&](int64_t k, int64_t i, int64_t j) {
      EXPECT_LE(std::abs(i > j ? lu.at(k, i, j) : 0.0), 1.0);
      return i == j ? 1.0 : i > j ? lu.at(k, i, j) : 0.0;
    });
    const Stack u = make(steps, columns, [&](int64_t k, int64_t i, int64_t j) {
      return i <= j ? lu.at(k, i, j) : 0.0;
    });
    expect_near(product(l, u), make(rows, columns, [&](int64_t k, int64_t i, int64_t j) {
                  return a.at(k, order[static_cast<size_t>(k * rows + i)], j);
                }));
    for (int64_t k = 0; k < kBatch; ++k) {  // the swaps, one after the other, make the order
      std::vector<int32_t> made;
      for (int64_t i = 0; i < rows; ++i) {
        made.push_back(static_cast<int32_t>(i));
      }
      for (int64_t i = 0; i < steps; ++i) {
        std::swap(made[static_cast<size_t>(i)],
                  made[static_cast<size_t>(swaps[static_cast<size_t>(k * steps + i)])]);
      }
      const auto from = order.begin() + k * rows;
      EXPECT_EQ(made, std::vector<int32_t>(from, from + rows));
    }
  }
}

TEST(Linalg, LuOfASingularMatrixHasAZeroPivotAndNoNaN) {
  const Stack a{2, 2, {1, 1, 1, 1, 0, 0, 0, 0}};
  const auto out = run(Kind::kLu, {a}, {matrices(2, 2), i32({kBatch, 2}), i32({kBatch, 2})});
  EXPECT_THAT(values<float>(out[0]), ElementsAre(1, 1, 1, 0, 0, 0, 0, 0));
}

TEST(Linalg, EighIsOrthogonalAndAscending) {
  for (const int64_t n : {1, 2, 3, 4, 7, 10}) {
    SCOPED_TRACE(n);
    const Stack a = symmetric(n, -0.5);
    for (const bool lower : {true, false}) {
      const auto out = run(Kind::kEigh, {triangle(a, lower)}, {matrices(n, n), f32({kBatch, n})},
                           EighAttrs{lower, true, 100, 1e-6});
      const Stack v = stack(out[0]);
      const auto w = values<float>(out[1]);
      expect_near(product(transpose(v), v), identity(n));
      expect_near(product(a, v), make(n, n, [&](int64_t k, int64_t i, int64_t j) {
                    return v.at(k, i, j) * w[static_cast<size_t>(k * n + j)];
                  }));
      for (int64_t k = 0; k < kBatch; ++k) {
        EXPECT_TRUE(std::is_sorted(w.begin() + k * n, w.begin() + (k + 1) * n));
      }
    }
  }
}

TEST(Linalg, EighOfNaNEnds) {
  Stack a = symmetric(3, 1);
  a.data[0] = NAN;
  const auto out = run(Kind::kEigh, {a}, {matrices(3, 3), f32({kBatch, 3})}, EighAttrs{});
  EXPECT_TRUE(std::isnan(values<float>(out[1])[0]));
}

TEST(Linalg, MatricesWithoutElements) {
  GraphBuilder b;
  Value* a = b.arg(f32({0, 3, 3}));
  Module& m = b.done({b.op(Kind::kCholesky, {a}, f32({0, 3, 3}), CholeskyAttrs{})});
  EXPECT_TRUE(expand_linalg(m));
  EXPECT_EQ(test::kinds(m), "constant return");
}

}  // namespace
}  // namespace tpu::compiler
