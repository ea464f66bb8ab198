// Custom calls that a framework partitions itself: the question, the answer in place of the call,
// and answers that do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "distribution.hpp"
#include "ir/error_kinds.hpp"

namespace tpu::compiler::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const TileList kRows{{2, 1, 4}, {0, 1, 2, 3, 4, 5, 6, 7}, true};  // dimension 0 by axis a

class OwnPartitioning : public testing::Test {
 protected:
  // y = call(x) of f32[8,6], x by rows along axis a, with rows passing where `rule` is set.
  Value* call(Value* x, bool rule = true) {
    CustomCallAttrs a{"Target", "key"};
    a.in = a.out = {x->type};
    if (rule) {
      a.rule = {x->type.dims, {LoopKind::kPass, LoopKind::kBlocked}, {{{0}, {1}}}, {{{0}, {1}}}};
    }
    return g_.op(Kind::kCustomCall, {x}, x->type, a);
  }

  // -x, of arguments and results of `type`.
  static std::unique_ptr<Function> negated(const Type& type, size_t count = 1) {
    auto f = std::make_unique<Function>();
    f->loc = unknown_loc();
    std::vector<Value*> out;
    for (size_t i = 0; i < count; ++i) {
      Value* x = f->body.add_arg(type);
      out.push_back(f->body.append(Kind::kNegate, {x}, {type}, NoAttrs{}, f->loc)->result());
    }
    f->body.append(Kind::kReturn, out, {}, NoAttrs{}, f->loc);
    return f;
  }

  void answer(const Type& type, const TileList& in, const TileList& out, size_t count = 1) {
    g_.module().partitioner = [=, this](const PartitionRequest& request) {
      asked_.push_back(request);
      return PartitionedOp{negated(type, count), {in}, {out}};
    };
  }

  Module& run(Value* result) {
    Module& m = g_.done({result});
    verify(m);
    partition(m);
    verify(m);
    return m;
  }

  std::string refused(bool rule = true) {
    try {
      run(call(g_.cut_arg(f32({8, 6}), {{0}, {}}), rule));
    } catch (const Contradiction& e) {
      return e.what();
    }
    return "";
  }

  Graph g_{true};
  std::vector<PartitionRequest> asked_;
};

TEST_F(OwnPartitioning, TheAnswerReplacesTheCall) {
  answer(f32({4, 6}), kRows, kRows);
  Module& m = run(call(g_.cut_arg(f32({8, 6}), {{0}, {}})));
  EXPECT_EQ(kinds(m), "negate reshape return");
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0].target, "Target");
  EXPECT_EQ(asked_[0].config, "key");
  EXPECT_THAT(asked_[0].operands, ElementsAre(f32({8, 6})));
  EXPECT_THAT(asked_[0].operand_tiles, ElementsAre(kRows));
  EXPECT_THAT(asked_[0].result_tiles, ElementsAre(kRows));
  EXPECT_EQ(m.main->results[0].sharding.dim_axes, (Cut{{0}, {}}));
}

TEST_F(OwnPartitioning, WithoutARuleNothingPassesAndOperandsMoveAsTheAnswerSays) {
  answer(f32({8, 6}), {}, {});
  Module& m = run(call(g_.cut_arg(f32({8, 6}), {{0}, {}}), false));
  EXPECT_EQ(count_of(m.main->body, Kind::kAllGather), 1);
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_THAT(asked_[0].operand_tiles, ElementsAre(kRows));
  EXPECT_THAT(asked_[0].result_tiles, ElementsAre(TileList{}));
}

TEST_F(OwnPartitioning, AComplexArrayIsTwoOperands) {
  CustomCallAttrs a{"Target", "key"};
  a.in = a.out = {{Elem::kComplex64, {8, 6}}};
  g_.module().partitioner = [this](const PartitionRequest& request) {
    asked_.push_back(request);
    return PartitionedOp{negated(f32({4, 6}), 2), {kRows}, {kRows}};
  };
  Value* re = g_.cut_arg(f32({8, 6}), {{0}, {}});
  Value* im = g_.cut_arg(f32({8, 6}), {{0}, {}});
  Op* both =
      g_.region().append(Kind::kCustomCall, {re, im}, {re->type, im->type}, a, unknown_loc());
  Module& m = run(g_.op(Kind::kAdd, {both->result(0), both->result(1)}, re->type));
  EXPECT_EQ(kinds(m), "negate negate reshape reshape add return");
  EXPECT_THAT(asked_.at(0).operands, ElementsAre(Type{Elem::kComplex64, {8, 6}}));
  EXPECT_THAT(asked_.at(0).operand_tiles, ElementsAre(kRows));
}

TEST_F(OwnPartitioning, NobodyAnswers) {
  EXPECT_THAT(refused(), HasSubstr("run the program by JAX on the plugin"));
}

TEST_F(OwnPartitioning, TheAnswerHasOtherOperands) {
  answer(f32({4, 6}), kRows, kRows, 2);
  EXPECT_THAT(refused(), HasSubstr("another number of operands or results"));
}

TEST_F(OwnPartitioning, TheAnswerHasOtherTypes) {
  answer(f32({8, 6}), kRows, kRows);
  EXPECT_THAT(refused(), HasSubstr("argument 0 of the function that `partition` gives is f32[8,6], "
                                   "by its sharding it must be f32[4,6]"));
}

TEST_F(OwnPartitioning, TheAnswerHasAnotherResult) {
  answer(f32({4, 6}), kRows, {});
  EXPECT_THAT(refused(), HasSubstr("result 0 of the function that `partition` gives is f32[4,6]"));
}

TEST_F(OwnPartitioning, TheAnswerCutsByNoAxes) {
  answer(f32({4, 6}), {{2, 1, 4}, {0, 1, 2, 7, 4, 5, 6, 3}, true}, kRows);
  EXPECT_THAT(refused(), HasSubstr("no axes of the program's mesh"));
}

}  // namespace
}  // namespace tpu::compiler::test
