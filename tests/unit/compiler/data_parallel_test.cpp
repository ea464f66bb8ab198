// Programs that say nothing of cores, their batch cut over some.
#include "import/data_parallel.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "board/board_loader.hpp"
#include "entry/compile.hpp"
#include "graph_builder.hpp"
#include "import/file.hpp"

namespace tpu::compiler::test {
namespace {

using ::testing::HasSubstr;
using Sizes = std::vector<int64_t>;

std::vector<std::byte> artifact(const std::string& name) {
  return read_file(std::string(TPU_TEST_DATA) + "/" + name + ".mlirbc");
}

const spec::BoardParams& board() {
  static const spec::BoardParams params = spec::load_board("v3_8");
  return params;
}

Compiled cut(const std::string& name, std::vector<size_t> arguments, std::vector<int> cores = {}) {
  CompileOptions options;
  options.data_parallel = std::move(arguments);
  options.cores = std::move(cores);
  return compile(artifact(name), "step", board(), options);
}

std::string refusal(const std::string& name, std::vector<size_t> arguments,
                    std::vector<int> cores = {}) {
  try {
    cut(name, std::move(arguments), std::move(cores));
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

// State leaves 0 to 11, images, labels.
TEST(DataParallel, CutsTheBatchAndKeepsCopiesOfTheState) {
  const Compiled out = cut("whole_mlp_16", {12, 13});
  const exe::ExecutableT& e = out.executable;
  EXPECT_EQ(e.partitions, 8u);
  EXPECT_EQ(e.args[12]->global_dims, (Sizes{16, 12}));
  EXPECT_EQ(e.args[12]->local_dims, (Sizes{2, 12}));
  EXPECT_EQ(e.args[13]->local_dims, (Sizes{2}));
  for (size_t leaf = 0; leaf < 12; ++leaf) {
    EXPECT_TRUE(e.args[leaf]->replicated) << leaf;
    EXPECT_TRUE(e.results[leaf]->replicated) << leaf;
    EXPECT_EQ(e.args[leaf]->donated_to, static_cast<int>(leaf));
  }
  for (const MovedArray& moved : out.report.moved) {  // the loss and six gradients, no array else
    EXPECT_EQ(moved.kind, Kind::kAllReduce) << moved.op;
  }
  EXPECT_EQ(out.report.moved.size(), 7u);
}

TEST(DataParallel, TakesTheCoresThatTheProgramGets) {
  const Compiled four = cut("whole_mlp_16", {12, 13}, {4, 5, 6, 7});
  EXPECT_EQ(four.executable.partitions, 4u);
  EXPECT_EQ(four.executable.args[12]->local_dims, (Sizes{4, 12}));
  const Compiled one = cut("whole_mlp_16", {12, 13}, {5});
  EXPECT_EQ(one.executable.partitions, 1u);
}

TEST(DataParallel, AResultOfEachExampleIsCutWithItsExample) {
  GraphBuilder b;
  b.module().global = true;
  Value* x = b.arg(f32({16, 4}));
  Value* w = b.arg(f32({16, 4}));  // looks like a batch, and is none
  b.module().main->args[1].alias_result = 1;
  Value* y = b.op(Kind::kNegate, {x}, f32({16, 4}));
  Module& m = b.done({y, b.op(Kind::kAbs, {w}, f32({16, 4}))});
  cut_batch(m, {0}, 8);
  const Compiled out = compile(std::move(m), board());
  EXPECT_EQ(out.executable.args[1]->local_dims, (Sizes{16, 4}));
  EXPECT_EQ(out.executable.results[0]->local_dims, (Sizes{2, 4}));
  EXPECT_EQ(out.executable.results[1]->local_dims, (Sizes{16, 4}));
  EXPECT_TRUE(out.report.moved.empty());
}

TEST(DataParallel, OneCoreSpeaksWithTheHost) {
  GraphBuilder b;
  b.module().global = true;
  Value* x = b.arg(f32({16}));
  Op* sent = b.region().append(Kind::kSend, {x}, {}, HostAttrs{1, -1, x->type}, unknown_loc());
  cut_batch(b.done({x}), {0}, 8);
  EXPECT_EQ(sent->as<HostAttrs>().partition, 0);
}

TEST(DataParallel, RefusesWhatCannotBeCut) {
  EXPECT_THAT(refusal("mlp_sgd", {6}), HasSubstr("the program is one of 8 cores already"));
  EXPECT_THAT(refusal("whole_mlp_16", {14}), HasSubstr("the program has 14 arguments"));
  EXPECT_THAT(
      refusal("whole_mlp_16", {0}),
      HasSubstr("argument 0 ('params[0]['b']'), f32[10]: dimension 0 cannot be sharded into 8 "
                "equal parts"));
  EXPECT_THAT(refusal("whole_mlp_16", {12}, {0, 1, 2}), HasSubstr("sharded into 3 equal parts"));
  GraphBuilder b;
  b.module().global = true;
  Value* x = b.arg(f32({16}));
  Value* rate = b.arg(f32({}));
  Value* sum =
      b.with_body(b.op(Kind::kAllReduce, {x}, f32({16}), CollectiveAttrs{{{0}}, 1}), Kind::kAdd);
  Module& m = b.done({sum, rate});
  const auto refused = [&](size_t argument) -> std::string {
    try {
      cut_batch(m, {argument}, 8);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refused(0), HasSubstr("the program specifies what each core does"));
  replace_all_uses(m.main->body, sum, x);
  m.main->body.ops.erase(m.main->body.ops.begin());
  EXPECT_THAT(refused(1), HasSubstr("argument 1, f32[]: a scalar has no dimension to shard"));
}

TEST(DataParallel, AnArtifactTellsItsCoresAndNames) {
  const ProgramInterface whole = interface_of(artifact("whole_mlp_eval"));
  EXPECT_EQ(whole.cores, 1);
  EXPECT_EQ(whole.results, 2u);
  ASSERT_EQ(whole.arguments.size(), 9u);
  EXPECT_EQ(whole.arguments[6], "images");
  EXPECT_EQ(interface_of(artifact("mlp_sgd")).cores, 8);
}

}  // namespace
}  // namespace tpu::compiler::test
