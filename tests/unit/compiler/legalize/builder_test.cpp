// Builder: the types it infers are those that the verifier wants; bodies applied to arrays.
#include "legalize/builder.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "graph_builder.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::i32;

// Replaces the one op of kind `negate` by what `make` returns, verifies, runs.
template <typename Make>
std::vector<float> replaced(GraphBuilder& b, Value* x, const Type& result, Make&& make) {
  Value* mark = b.op(Kind::kNegate, {x}, x->type);
  Module& m = b.done({mark});
  Rewriter rw;
  rw.run(m.main->body, [&](Op& op, Rewriter& r) -> std::vector<Value*> {
    Builder builder(r);
    return op.kind == Kind::kNegate ? std::vector<Value*>{make(builder, op.operands[0])}
                                    : std::vector<Value*>{};
  });
  m.main->results[0].global = result;
  m.number_ops();
  verify(m);
  Tensor in = make_tensor(x->type);
  for (int64_t i = 0; i < in.type.count(); ++i) {
    const auto f = static_cast<float>(i);
    std::memcpy(in.data.data() + 4 * i, &f, 4);
  }
  const auto out = interpret(m, {{in}});
  std::vector<float> values(static_cast<size_t>(result.count()));
  std::memcpy(values.data(), out[0][0].data.data(), out[0][0].data.size());
  return values;
}

TEST(LowerBuilder, WindowHoldsPositionsThenTaps) {
  GraphBuilder b;
  const auto got = replaced(b, b.arg(f32({7})), f32({3, 2}), [](Builder& r, Value* x) {
    return r.window(x, {2}, {2}, {2});  // x[2 o + 2 k]
  });
  EXPECT_EQ(got, (std::vector<float>{0, 2, 2, 4, 4, 6}));
}

TEST(LowerBuilder, WindowLargerThanTheOperandIsEmpty) {
  GraphBuilder b;
  const auto got = replaced(b, b.arg(f32({3})), f32({0, 4}),
                            [](Builder& r, Value* x) { return r.window(x, {4}, {1}, {1}); });
  EXPECT_TRUE(got.empty());
}

TEST(LowerBuilder, PadCropsDilatesAndFills) {
  GraphBuilder b;
  const auto got = replaced(b, b.arg(f32({3})), f32({5}), [](Builder& r, Value* x) {
    return r.pad(x, r.splat(f32({}), 9), {-1}, {1}, {1});  // 0 . 1 . 2 -> . 1 . 2 9
  });
  EXPECT_EQ(got, (std::vector<float>{9, 1, 9, 2, 9}));
}

TEST(LowerBuilder, AppliesABodyToArrays) {
  GraphBuilder b;
  Value* x = b.arg(f32({4}));
  Region body;
  Value* l = body.add_arg(f32({}));
  Value* r = body.add_arg(f32({}));
  Value* two = body.append(Kind::kConstant, {}, {f32({})}, ConstantAttrs{make_splat(f32({}), 2)},
                           unknown_loc())
                   ->result();
  Value* s = body.append(Kind::kMultiply, {r, two}, {f32({})}, NoAttrs{}, unknown_loc())->result();
  Value* t = body.append(Kind::kAdd, {l, s}, {f32({})}, NoAttrs{}, unknown_loc())->result();
  body.append(Kind::kReturn, {t}, {}, NoAttrs{}, unknown_loc());
  const auto got = replaced(b, x, f32({4}), [&](Builder& builder, Value* v) {
    return builder.apply(body, {v, builder.reverse(v, {0})}, {4}).at(0);
  });
  EXPECT_EQ(got, (std::vector<float>{6, 5, 4, 3}));  // x + 2 * reversed x
}

TEST(LowerBuilder, ReduceMakesItsBody) {
  GraphBuilder b;
  const auto got = replaced(b, b.arg(f32({2, 3})), f32({2}), [](Builder& r, Value* x) {
    return r.reduce(Kind::kMaximum, x, r.splat(f32({}), 1), {1});
  });
  EXPECT_EQ(got, (std::vector<float>{2, 5}));
}

}  // namespace
}  // namespace tpu::compiler
