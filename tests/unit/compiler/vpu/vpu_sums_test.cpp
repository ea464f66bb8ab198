// Sums that are the same in all blocks are made once for a command.
#include "vpu/vpu_sums.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "../graph_builder.hpp"
#include "vpu/vpu_gen.hpp"

namespace tpu::compiler::test {
namespace {

using spec::VpuOp;

const Type kWords{Elem::kU32, {4096}};

Nest nest_of(const std::vector<Value*>& values) {
  NestContext context;
  context.is_copied = [](const Value*) { return false; };
  std::vector<const Op*> ops;
  for (const Value* v : values) {
    ops.push_back(v->def);
  }
  return *build_nest(ops, kWords.dims, context);
}

// Stores the last value.
VpuProgram program_of(const std::vector<Value*>& values) {
  VpuGenOptions options;
  options.stores = {static_cast<int>(values.size()) - 1};
  options.flat = true;
  options.col_loop = 0;
  return generate_vpu(nest_of(values), options).program;
}

int64_t count(const VpuProgram& program, VpuOp op, bool in_body) {
  int64_t first = 0;
  for (size_t s = 0; s < kBody; ++s) {
    first += program.header.section[s];
  }
  const auto begin = program.code.begin() + (in_body ? first : 0);
  const auto end = in_body ? begin + program.header.section[kBody] : program.code.begin() + first;
  return std::count_if(begin, end,
                       [&](const spec::VpuInsn& i) { return i.op == static_cast<uint8_t>(op); });
}

class VpuSums : public ::testing::Test {
 protected:
  Value* key() {
    return b_.op(Kind::kBroadcastInDim, {b_.arg({Elem::kU32, {}})}, kWords, DimsAttrs{{}});
  }
  Value* add(Value* a, Value* b) { return b_.op(Kind::kAdd, {a, b}, kWords); }

  GraphBuilder b_;
  Value* x_ = b_.arg(kWords);
};

TEST_F(VpuSums, AKeyAndTheNumberOfARoundAreOneNumber) {
  Value* keyed = add(x_, key());
  const VpuProgram program = program_of({keyed, add(keyed, b_.constant(kWords, 3))});
  EXPECT_EQ(count(program, VpuOp::kAddI, true), 1);
  EXPECT_EQ(count(program, VpuOp::kAddI, false), 1);
}

TEST_F(VpuSums, EqualOnesAreMadeOnce) {
  Value *k = key(), *three = b_.constant(kWords, 3);
  Value *a = add(x_, k), *b = add(a, three), *c = add(b, k), *d = add(c, three);
  Value* mixed = b_.op(Kind::kXor, {b, d}, kWords);
  const VpuProgram program = program_of({a, b, c, d, mixed});
  EXPECT_EQ(count(program, VpuOp::kAddI, true), 2);
  EXPECT_EQ(count(program, VpuOp::kAddI, false), 1);
}

TEST_F(VpuSums, AKeyOfARoundIsMadeOutside) {
  Value* round_key = add(key(), b_.constant(kWords, 0x9e3779b9));
  const VpuProgram program = program_of({round_key, b_.op(Kind::kXor, {x_, round_key}, kWords)});
  EXPECT_EQ(count(program, VpuOp::kAddI, true), 0);
  EXPECT_EQ(count(program, VpuOp::kAddI, false), 1);
}

TEST_F(VpuSums, WhatIsReadTwiceStays) {
  Value* keyed = add(x_, key());
  Value* more = add(keyed, b_.constant(kWords, 3));
  const VpuProgram program = program_of({keyed, more, b_.op(Kind::kXor, {keyed, more}, kWords)});
  EXPECT_EQ(count(program, VpuOp::kAddI, true), 2);
  EXPECT_EQ(count(program, VpuOp::kAddI, false), 0);
}

TEST_F(VpuSums, FloatsKeepTheOrderOfTheirSums) {
  const Type floats = f32({4096});
  Value* k = b_.op(Kind::kBroadcastInDim, {b_.arg(f32({}))}, floats, DimsAttrs{{}});
  Value* sum = b_.op(Kind::kAdd, {b_.arg(floats), k}, floats);
  const VpuProgram program =
      program_of({sum, b_.op(Kind::kAdd, {sum, b_.constant(floats, 3)}, floats)});
  EXPECT_EQ(count(program, VpuOp::kAddF, true), 2);
}

TEST_F(VpuSums, MoreThanTheLimitStayInTheBody) {
  std::vector<Value*> values;
  Value *k = key(), *at = x_;
  for (int i = 1; i <= 40; ++i) {
    values.push_back(add(k, b_.constant(kWords, i)));
    at = b_.op(Kind::kXor, {at, values.back()}, kWords);
    values.push_back(at);
  }
  const VpuProgram program = program_of(values);
  EXPECT_EQ(count(program, VpuOp::kAddI, false), 16);
  EXPECT_EQ(count(program, VpuOp::kAddI, true), 24);
}

}  // namespace
}  // namespace tpu::compiler::test
