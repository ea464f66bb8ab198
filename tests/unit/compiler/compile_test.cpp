// The entry of the compiler: what it gives, what it shows on the way, and what it refuses.
#include "entry/compile.hpp"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "board/board_loader.hpp"
#include "graph_builder.hpp"
#include "import/file.hpp"
#include "import/hlo/hlo_bytes.hpp"

namespace tpu::compiler {
namespace {

using Bytes = std::vector<std::byte>;

Bytes artifact(const std::string& name) {
  return read_file(std::string(TPU_TEST_DATA) + "/" + name + ".mlirbc");
}

const spec::BoardParams& board() {
  static const spec::BoardParams params = spec::load_board("v3_8");
  return params;
}

TEST(Compile, GivesAnExecutableAndTheGraphOfItsKernels) {
  const Compiled out = compile(artifact("mlp_sgd"), "step", board());
  EXPECT_EQ(out.executable.name, "step");
  EXPECT_EQ(out.executable.partitions, 8u);
  EXPECT_GT(out.executable.estimated_cycles, 0u);
  EXPECT_EQ(out.report.graph.main->args.size(), out.executable.args.size());
  EXPECT_TRUE(out.report.graph.functions.empty());
  EXPECT_NO_THROW(exe::read_executable(exe::write_executable(out.executable)));
}

TEST(Compile, CountsTheBytesThatLeaveACore) {
  const Compiled alone = compile(artifact("dense"), "", board());
  EXPECT_EQ(alone.executable.partitions, 1u);
  EXPECT_EQ(alone.executable.link_bytes, 0u);
  const Compiled gang = compile(artifact("mlp_sgd"), "", board());
  EXPECT_GT(gang.executable.link_bytes, 0u);
  EXPECT_EQ(gang.executable.link_bytes % 4, 0u);
}

TEST(Compile, TakesTheNameOfTheModule) {
  EXPECT_EQ(compile(artifact("mlp_sgd"), "", board()).executable.name, "jit_per_core");
}

TEST(Compile, ShowsTheProgramOfOneCoreAsText) {
  const std::string text = core_program_text(artifact("mlp_sgd"), board());
  EXPECT_TRUE(
      text.starts_with("module @\"jit_per_core\" attributes {mhlo.num_partitions = 8 : i32"))
      << text.substr(0, 100);
  const size_t sums = text.find("\"stablehlo.all_reduce\"");
  ASSERT_NE(sums, std::string::npos);  // of all gradients and the loss at once
  EXPECT_EQ(text.find("\"stablehlo.all_reduce\"", sums + 1), std::string::npos);
  EXPECT_EQ(text.find("sdy."), std::string::npos);
}

TEST(Compile, ShowsTheStagesThatSomebodyAsksForInOrder) {
  std::vector<std::string> seen;
  CompileOptions options;
  options.dump = [&](const std::string& stage, const std::string& text) {
    seen.push_back(stage);
    EXPECT_FALSE(text.empty()) << stage;
  };
  compile(artifact("dense"), "dense", board(), options);
  EXPECT_TRUE(seen.empty());
  options.dump_after = stages();
  compile(artifact("dense"), "dense", board(), options);
  EXPECT_EQ(seen, stages());
}

TEST(Compile, ShowsKernelsByTheNamesOfTheirClasses) {
  CompileOptions options;
  std::string kernels;
  options.dump_after = {"form"};
  options.dump = [&](const std::string&, const std::string& text) { kernels = text; };
  compile(artifact("control"), "control", board(), options);
  for (const std::string name : {": while (", ": yield (", ": branch (", ": copy_out ("}) {
    EXPECT_NE(kernels.find(name), std::string::npos) << name << kernels;
  }
}

// The gradient of a weight that is kept as [columns, rows], as PyTorch has it: the transpose unit
// turns rows in front of the matrix units, and sums behind them.
TEST(Compile, TransposedSumsDoNotHoldUpTheMatrixUnits) {
  for (const int64_t columns : {1024, 2048}) {
    test::GraphBuilder b;
    Value* x = b.arg(test::f32({1024, 784}));
    Value* g = b.arg(test::f32({1024, columns}));
    const DotAttrs rows{{}, {}, {0}, {0}, Precision::kDefault, Precision::kDefault};
    b.done({b.op(Kind::kDotGeneral, {g, x}, test::f32({columns, 784}), rows)});
    const exe::ExecutableT made = compile(std::move(b.module()), board()).executable;
    const double flops_of_cycle = 2.0 * 128 * 128 * static_cast<double>(board().core.mxus);
    const double bound = static_cast<double>(made.matmul_flops) / flops_of_cycle;
    EXPECT_LT(static_cast<double>(made.estimated_cycles), 1.9 * bound) << columns;
  }
}

TEST(Compile, ShowsStagesInFrontOfAnError) {
  CompileOptions options;
  std::vector<std::string> seen;
  options.dump_after = {"import", "listing"};
  options.dump = [&](const std::string& stage, const std::string&) { seen.push_back(stage); };
  const spec::BoardParams small = spec::load_board("v3_8", {"core.vmem_kib=16"});
  EXPECT_THROW(compile(artifact("mlp_sgd"), "step", small, options), Error);
  EXPECT_EQ(seen, std::vector<std::string>{"import"});
}

TEST(Compile, TellsHowFarItIsAndGivesTheSameBytes) {
  std::vector<std::string> seen;
  double last = 0;
  CompileOptions options;
  options.progress = [&](const std::string& stage, double done) {
    EXPECT_GE(done, last) << stage;
    EXPECT_LT(done, 1) << stage;
    last = done;
    if (seen.empty() || seen.back() != stage) {
      seen.push_back(stage);
    }
  };
  const Bytes told =
      exe::write_executable(compile(artifact("mlp_sgd"), "", board(), options).executable);
  EXPECT_EQ(told, exe::write_executable(compile(artifact("mlp_sgd"), "", board()).executable));
  EXPECT_EQ(seen.front(), stages()[1]) << "the import is behind";
  const std::vector<std::string> end(seen.end() - 5, seen.end());
  EXPECT_EQ(end,
            std::vector<std::string>({"kernels", "commands", "semaphores", "image", "estimate"}));
}

TEST(Compile, SaysWhyNothingIsSharded) {
  CompileOptions options;
  options.update_sharding = UpdateSharding::kOn;
  const Compiled one = compile(artifact("dense"), "dense", board(), options);
  EXPECT_EQ(one.report.unsharded, std::vector<std::string>{"the program runs on one core"});
  EXPECT_EQ(compile(artifact("dense"), "dense", board()).report.unsharded, one.report.unsharded);
  const auto reason = [&] {
    const std::vector<std::string> reasons =
        compile(artifact("mlp_sgd"), "mlp_sgd", board(), options).report.unsharded;
    return reasons.size() == 1 ? reasons[0] : std::to_string(reasons.size()) + " reasons";
  };
  options.keep_values = true;
  EXPECT_EQ(reason(), "the values of all operations are kept");
  options = {};
  options.update_sharding = UpdateSharding::kOff;
  EXPECT_EQ(reason(), "it is switched off");
  options = {};
  options.style = Style::kXla2019;
  EXPECT_EQ(reason(), "the style xla2019 shards updates only with --update-sharding=on");
}

// Cuts and changed bytes: an error or an executable that can be read, nothing else.
TEST(Compile, DamagedBytesAreErrorsNotCrashes) {
  const Bytes good = artifact("dense");
  for (const size_t n : {size_t{0}, size_t{3}, size_t{40}, good.size() / 2, good.size() - 1}) {
    EXPECT_THROW(compile(std::span(good).first(n), "cut", board()), Error) << n;
  }
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    Bytes bad = good;
    for (int k = 0; k < 3; ++k) {
      bad[random() % bad.size()] = static_cast<std::byte>(random());
    }
    try {
      const Compiled out = compile(bad, "damaged", board());
      EXPECT_NO_THROW(exe::read_executable(exe::write_executable(out.executable))) << i;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(Compile, ThreadsGetTheBytesOfOneAlone) {
  const Bytes input = artifact("mlp_adam");
  std::vector<Bytes> got(4);
  std::vector<std::thread> threads;
  for (Bytes& out : got) {
    threads.emplace_back(
        [&] { out = exe::write_executable(compile(input, "step", board()).executable); });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  const Bytes alone = exe::write_executable(compile(input, "step", board()).executable);
  for (const Bytes& out : got) {
    EXPECT_TRUE(out == alone);
  }
}

// Each replica has weights of its own: equal parts of them are on no two cores.
TEST(Compile, UpdatesOfReplicasAreNotCutOverThem) {
  CompileOptions options;
  options.update_sharding = UpdateSharding::kOn;
  options.import = {.replicas = 8};
  const Compiled made = compile(artifact("replica_step_large"), "", board(), options);
  EXPECT_EQ(made.executable.partitions, 8u);
  EXPECT_EQ(made.executable.sharded_update_bytes, 0u);
  ASSERT_FALSE(made.report.unsharded.empty());
  const std::string& why = made.report.unsharded[0];
  EXPECT_NE(why.find("no donated argument is updated by it"), std::string::npos) << why;
}

// w' = w - m', m' = m + sum over the replicas of g. `same`: what each replica has of w and m is.
std::string step_of_replicas(bool same) {
  using namespace hlo_bytes;
  const std::string scalar = shape(kF32, {}), large = shape(kF32, {1 << 20});
  const auto state = [&](int64_t n) {
    hlo_bytes::Instruction made = parameter(n, large);
    made.fields += same ? hlo_bytes::bytes(61, packed(1, {1})) : "";
    return made;
  };
  const auto taken = [](int64_t n) {
    return hlo_bytes::bytes(1, packed(1, {n}) + number(2, n) + number(4, 2));
  };
  const std::string sum =
      computation("sum", 1, {parameter(0, scalar), parameter(1, scalar), {"add", scalar, {1, 2}}});
  return module({sum, computation("main", 2,
                                  {state(0),
                                   state(1),
                                   parameter(2, large),
                                   {"all-reduce", large, {3}, calls({1})},
                                   {"add", large, {2, 4}},
                                   {"subtract", large, {1, 5}},
                                   {"tuple", tuple_shape({large, large}), {6, 5}}})},
                hlo_bytes::bytes(8, taken(0) + taken(1)));
}

TEST(Compile, UpdatesOfWhatAllReplicasHaveAreCutOverThem) {
  CompileOptions options;
  options.import = {.replicas = 8};
  const auto compiled = [&](bool same) {
    return compile(hlo_bytes::as_bytes(step_of_replicas(same)), "", board(), options).executable;
  };
  const exe::ExecutableT cut = compiled(true), whole = compiled(false);
  EXPECT_EQ(whole.sharded_update_bytes, 0u);
  EXPECT_EQ(whole.args[0]->local_dims, (std::vector<int64_t>{1, 1 << 20}));
  EXPECT_EQ(cut.sharded_update_bytes, uint64_t{4} << 20);
  EXPECT_EQ(cut.args[0]->local_dims, (std::vector<int64_t>{1 << 20}));
  EXPECT_TRUE(cut.args[0]->replicated);
  EXPECT_FALSE(cut.args[1]->owned_by.empty());  // each core keeps its part of m up to date
  EXPECT_LT(cut.estimated_cycles, whole.estimated_cycles);
}

}  // namespace
}  // namespace tpu::compiler
