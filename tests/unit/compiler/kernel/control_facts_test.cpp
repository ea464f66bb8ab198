// Which integers the sequencer computes: expressions with shared parts and long ones end at once.
#include "kernel/control_facts.hpp"

#include <gtest/gtest.h>

#include "../graph_builder.hpp"
#include "kernel/argument_stacks.hpp"

namespace tpu::compiler::test {
namespace {

TEST(ControlFacts, SharedPartsAreLookedAtOnce) {
  GraphBuilder b(8);
  Value* core = b.op(Kind::kPartitionId, {}, i32({}));
  Value* from_argument = b.arg(i32({}));
  for (int level = 0; level < 60; ++level) {  // 2^60 paths
    core = b.op(Kind::kAdd, {core, core}, i32({}));
    from_argument = b.op(Kind::kAdd, {from_argument, from_argument}, i32({}));
  }
  const ControlFacts facts(b.done({core, from_argument}));
  EXPECT_FALSE(facts.on_sequencer(core));
  EXPECT_FALSE(facts.on_sequencer(from_argument));
}

TEST(ControlFacts, LongExpressionsAreLeftToKernels) {
  GraphBuilder b(8);
  Value* v = b.op(Kind::kPartitionId, {}, i32({}));
  std::vector<Value*> chain = {v};
  for (int i = 0; i < 50'000; ++i) {
    chain.push_back(b.op(Kind::kNegate, {chain.back()}, i32({})));
  }
  const ControlFacts facts(b.done({chain.back()}));
  EXPECT_TRUE(facts.on_sequencer(chain[kScalarOps - 1]));
  EXPECT_FALSE(facts.on_sequencer(chain[kScalarOps]));
  EXPECT_FALSE(facts.on_sequencer(chain.back()));
}

TEST(ControlFacts, RegistersGrowWithTheRightOperand) {
  GraphBuilder b(8);
  Value* v = b.op(Kind::kPartitionId, {}, i32({}));
  std::vector<Value*> nested = {v};
  for (int i = 0; i < kScalarRegisters; ++i) {
    nested.push_back(b.op(Kind::kAdd, {v, nested.back()}, i32({})));
  }
  const ControlFacts facts(b.done({nested.back()}));
  EXPECT_TRUE(facts.on_sequencer(nested[kScalarRegisters - 1]));
  EXPECT_FALSE(facts.on_sequencer(nested[kScalarRegisters]));
}

// Results that replace an argument have its slot, and high words none.
TEST(SlotNumbers, AreThoseOfArgumentsAndOfFurtherResults) {
  GraphBuilder b;
  Value* state = b.arg(f32({4}));
  const Type words{Elem::kU32, {4}};
  Value *low = b.arg(words), *high = b.arg(words);
  Module& m = b.done({low, high, state, state});
  m.main->args[0].alias_result = 2;
  m.main->args[1].part = m.main->results[0].part = WordPart::kLow;
  m.main->args[2].part = m.main->results[1].part = WordPart::kHigh;
  const SlotNumbers slots(*m.main);
  EXPECT_EQ(slots.arguments, (std::vector<int>{0, 1, -1}));
  EXPECT_EQ(slots.results, (std::vector<int>{2, -1, 0, 3}));
}

}  // namespace
}  // namespace tpu::compiler::test
