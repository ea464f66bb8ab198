// concatenate of short rows: which forms become transposes, and that values stay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "graph_builder.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "legalize/legalize.hpp"
#include "passes/simplify.hpp"
#include "tensors.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::tensor;
using test::values;
using testing::HasSubstr;
using testing::Not;

// The kinds that operands of these shapes become; the values must be those of the interpreter.
std::string concatenated(const std::vector<Dims>& shapes, int64_t dim) {
  GraphBuilder b;
  std::vector<Value*> operands;
  std::vector<Tensor> args;
  Type out = f32(shapes[0]);
  out.dims[static_cast<size_t>(dim)] = 0;
  float next = 0;
  for (const Dims& dims : shapes) {
    operands.push_back(b.arg(f32(dims)));
    out.dims[static_cast<size_t>(dim)] += dims[static_cast<size_t>(dim)];
    std::vector<float> numbers(static_cast<size_t>(f32(dims).count()));
    std::iota(numbers.begin(), numbers.end(), next);
    next += static_cast<float>(numbers.size());
    args.push_back(tensor(f32(dims), numbers));
  }
  Module& m = b.done({b.op(Kind::kConcatenate, operands, out, DimAttrs{dim})});
  verify(m);
  const auto before = values<float>(interpret(m, {args})[0][0]);
  legalize(m);
  simplify(m);
  m.number_ops();
  verify(m);
  EXPECT_EQ(values<float>(interpret(m, {args})[0][0]), before);
  return test::kinds(m);
}

TEST(Concatenate, ShortRowsAreTransposed) {
  EXPECT_THAT(concatenated({{100, 1}, {100, 1}}, 1), HasSubstr("transpose"));
  EXPECT_THAT(concatenated({{5, 20, 1}, {5, 20, 1}, {5, 20, 1}}, 2), HasSubstr("transpose"));
  EXPECT_THAT(concatenated({{100, 1, 3}, {100, 2, 3}}, 1), Not(HasSubstr("transpose")));
  EXPECT_THAT(concatenated({{100, 1, 2}, {100, 2, 2}}, 1), HasSubstr("transpose"));
  EXPECT_THAT(concatenated({{100, 4}, {100, 4}}, 1), HasSubstr("transpose"));
}

TEST(Concatenate, OthersStay) {
  EXPECT_THAT(concatenated({{3, 100}, {5, 100}}, 0), Not(HasSubstr("transpose")));
  EXPECT_THAT(concatenated({{100, 1}, {100, 90}}, 1), Not(HasSubstr("transpose")));
  EXPECT_THAT(concatenated({{9, 1}, {9, 1}}, 1), Not(HasSubstr("transpose")));
}

}  // namespace
}  // namespace tpu::compiler
