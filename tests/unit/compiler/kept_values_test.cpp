// Values of ops as results of a program, and the first op that made something else than the
// reference evaluation.
#include "instrument/kept_values.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "board/board_loader.hpp"
#include "entry/compile.hpp"
#include "entry/pipeline.hpp"
#include "graph_builder.hpp"
#include "import/file.hpp"
#include "import/import.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "passes/pass_manager.hpp"
#include "reference/value_reference.hpp"
#include "tensors.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::tensor;
using test::values;
using ::testing::ElementsAre;

TEST(KeptValues, AreResultsBehindThoseOfTheProgram) {
  GraphBuilder b;
  Value* x = b.arg(f32({2}));
  Value* doubled = b.op(Kind::kAdd, {x, x}, x->type);
  Value* product = b.op(Kind::kMultiply, {doubled, b.constant(x->type, 5)}, x->type);
  Module& m = b.done({product});
  const KeptValues kept = describe_kept(m);
  keep_values(m);
  m.number_ops();
  verify(m);
  EXPECT_EQ(kept.results, 1U);
  ASSERT_EQ(kept.values.size(), 2U) << "no constants";
  EXPECT_EQ(kept.values[0].op, "stablehlo.add");
  EXPECT_EQ(kept.values[0].where, "test.py:1:1");
  EXPECT_THAT(kept.values[0].operands, ElementsAre("arg0", "arg0"));
  EXPECT_THAT(kept.values[1].operands, ElementsAre("%0", "constant"));
  const std::vector<Tensor> out = interpret(m, {{tensor<float>(f32({2}), {1, 2})}})[0];
  ASSERT_EQ(out.size(), 3U);
  EXPECT_EQ(out[1].type.dims, (Dims{1, 2}));
  EXPECT_THAT(values<float>(out[1]), ElementsAre(2, 4));
  EXPECT_THAT(values<float>(out[2]), ElementsAre(10, 20));
}

// A program of tests/data, its ops evaluated by the reference in place of a board.
class Reference : public ::testing::Test {
 protected:
  void read(const std::string& name) {
    artifact_ = read_file(std::string(TPU_TEST_DATA) + "/" + name + ".mlirbc");
    reference_.emplace(artifact_);
    const spec::BoardParams board = spec::load_board("v3_8", {});
    CompileOptions options;
    options.keep_values = true;
    const Compiled compiled = compile(artifact_, name, board, options);
    for (const auto& arg : compiled.executable.args) {
      std::vector<float> numbers(arg->elem == exe::Elem::f32 ? 1 : 0);
      int64_t count = 1;
      for (const int64_t dim : arg->global_dims) {
        count *= dim;
      }
      numbers.resize(static_cast<size_t>(count));
      for (float& number : numbers) {
        number = std::sin(static_cast<float>(++drawn_) * 12.9898F);
      }
      std::vector<std::byte>& bytes = arguments_.emplace_back(numbers.size() * sizeof(float));
      std::memcpy(bytes.data(), numbers.data(), bytes.size());
    }
    EXPECT_EQ(compiled.executable.results.size(),
              reference_->kept().results + reference_->kept().values.size());
  }
  // Values as the board gives them: by evaluating once, taking what comes.
  void evaluate() {
    made_.assign(reference_->kept().values.size(), {});
    Module module = import_vhlo(artifact_, "");
    run_passes(module, canonical_passes());
    size_t number = 0;
    const std::vector<Value*> kept = values_to_keep(module);
    std::vector<Tensor> global;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      global.push_back({module.main->args[i].global, arguments_[i]});
    }
    interpret(module, split_arguments(module, global), {},
              [&](size_t core, const Value& value, MadeValue& made) {
                if (number < kept.size() && kept[number] == &value) {
                  made_[number].push_back(made.value->data);
                  number += core + 1 == static_cast<size_t>(module.num_cores) ? 1 : 0;
                }
                return true;
              });
    EXPECT_EQ(number, kept.size());
  }
  ValueChecked check() {
    return reference_->check(arguments_, {.tolerance = 1e-4, .board = [&](size_t v, size_t core) {
                                            return made_[v].at(core);
                                          }});
  }

  std::vector<std::byte> artifact_;
  std::optional<ValueReference> reference_;
  std::vector<std::vector<std::byte>> arguments_;
  std::vector<std::vector<std::vector<std::byte>>> made_;  // by value and core
  int drawn_ = 0;
};

TEST_F(Reference, AgreesWithItself) {
  read("residual_block");
  evaluate();
  const ValueChecked checked = check();
  EXPECT_FALSE(checked.first);
  EXPECT_TRUE(checked.not_covered.empty());
}

// Each op's value in turn is wrong on one core: that op is named, not those that use it.
TEST_F(Reference, NamesTheOpWhoseValueIsWrong) {
  read("residual_block");
  evaluate();
  for (size_t v = 0; v < made_.size(); v += 7) {
    const auto good = made_[v][5];
    made_[v][5].back() ^= std::byte{0x40};  // the largest bit of an exponent, or 64 in an integer
    const ValueChecked checked = check();
    ASSERT_TRUE(checked.first) << v;
    EXPECT_EQ(checked.first->value, v);
    EXPECT_EQ(checked.first->core, 5U);
    EXPECT_EQ(checked.first->elements, 1);
    made_[v][5] = good;
  }
}

TEST_F(Reference, NanIsFarOffUnlessExpected) {
  read("dense");
  evaluate();
  const float nan = NAN;
  std::memcpy(made_.back()[0].data(), &nan, sizeof nan);
  ASSERT_TRUE(check().first);
  EXPECT_TRUE(std::isnan(check().first->made));
  std::memcpy(arguments_[0].data(), &nan, sizeof nan);
  evaluate();
  EXPECT_FALSE(check().first);
}

TEST(EvalConvolution, IsWhatTheSpecificationSays) {
  GraphBuilder b;
  ConvAttrs attrs;
  attrs.window_stride = {2};
  attrs.pad_low = {1};
  attrs.pad_high = {1};
  attrs.lhs_dilation = {2};
  attrs.rhs_dilation = {1};
  attrs.window_reversal = {true};
  attrs.input_batch = 0;
  attrs.input_feature = 2;
  attrs.input_spatial = {1};
  attrs.kernel_input_feature = 1;
  attrs.kernel_output_feature = 2;
  attrs.kernel_spatial = {0};
  attrs.output_batch = 0;
  attrs.output_feature = 2;
  attrs.output_spatial = {1};
  attrs.feature_groups = 2;
  Value* x = b.arg(f32({1, 3, 2}));
  Value* w = b.arg(f32({2, 1, 2}));
  // Dilated and padded, a feature is 0 a 0 b 0 c 0: windows of two begin at 0, 2, 4.
  Module& m = b.done({b.op(Kind::kConvolution, {x, w}, f32({1, 3, 2}), attrs)});
  verify(m);
  const auto out = interpret(m, {{tensor<float>(f32({1, 3, 2}), {1, 10, 2, 20, 3, 30}),
                                  tensor<float>(f32({2, 1, 2}), {5, 6, 7, 8})}})[0];
  EXPECT_THAT(values<float>(out[0]), ElementsAre(5, 60, 10, 120, 15, 180));
}

}  // namespace
}  // namespace tpu::compiler
