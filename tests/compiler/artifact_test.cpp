// Artifacts exported from JAX, compiled and run on the untimed machine, against the interpreter.
#include <filesystem>

#include "../unit/compiler/graph_builder.hpp"
#include "entry/pipeline.hpp"
#include "import/import.hpp"
#include "run_compiled.hpp"

namespace tpu::compiler::test {
namespace {

Module load_artifact(const std::string& name) {
  Module m = import_vhlo_file(std::string(TPU_TEST_DATA) + "/" + name + ".mlirbc");
  run_passes(m, canonical_passes());
  return m;
}

class Artifact : public testing::TestWithParam<const char*> {};

TEST_P(Artifact, ComputesWhatTheGraphSays) {
  Module m = load_artifact(GetParam());
  RunOptions o;
  o.order_seeds =
      m.num_cores == 1 ? std::vector<uint32_t>{0, 1, 2, 3} : std::vector<uint32_t>{0, 5};
  check_graph(m, o);
}

TEST_P(Artifact, ComputesTheSameInLittleVmem) {
  RunOptions o;
  o.overrides = {"core.vmem_kib=64"};
  o.order_seeds = {9};
  Module m = load_artifact(GetParam());
  check_graph(m, o);
}

INSTANTIATE_TEST_SUITE_P(All, Artifact,
                         testing::Values("dense", "elementwise", "dots", "shapes", "constants",
                                         "bf16_dense", "integers", "collectives", "collectives_2d",
                                         "mlp_sgd", "mlp_momentum", "mlp_adam", "zero_elements"),
                         [](const auto& param_info) { return std::string(param_info.param); });

// Programs of one op each, as an eager framework asks for them.
TEST(OneOp, ComputesWhatTheGraphSays) {
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator(TPU_TEST_DATA "/one_op")) {
    const std::string name = file.path().stem();
    SCOPED_TRACE(name);
    Module m = load_artifact("one_op/" + name);
    if (name == "convolution") {
      run_passes(m, compile_passes());  // the interpreter knows what it is made of
    }
    RunOptions o;
    o.order_seeds = {3};
    check_graph(m, o);
    ++count;
  }
  EXPECT_EQ(count, 50);
}

// What the compiler makes is what the reader of executables takes, up to the limit of both.
TEST(Dimensions, ManyAreCompiledAndTooManyNamed) {
  for (const size_t rank : {size_t{12}, size_t{13}, size_t{17}, exe::kMaxRank}) {
    GraphBuilder b;
    Dims dims(rank, 1);
    dims[0] = dims[rank / 2] = dims[rank - 1] = 3;
    Value* x = b.arg(f32(dims));
    Module& m = b.done({b.op(Kind::kAdd, {x, x}, f32(dims))});
    check_graph(m);
    const exe::ExecutableT e = generate(m, spec::load_board("v3_8"));
    EXPECT_EQ(exe::read_executable(exe::write_executable(e)).args[0]->global_dims, dims);
  }
  GraphBuilder b;
  const Dims dims(exe::kMaxRank + 1, 1);
  Value* x = b.arg(f32({1}));
  Module& m = b.done({b.op(Kind::kReshape, {x}, f32(dims))});
  try {
    generate(m, spec::load_board("v3_8"));
    FAIL() << "compiled";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("reshape: result 0 has 65 dimensions"), std::string::npos)
        << e.what();
    EXPECT_NE(std::string(e.what()).find(":1:"), std::string::npos) << e.what();
  }
}

TEST(MnistStep, RunsOnABoardWithOneMatrixUnit) {
  RunOptions o;
  o.board = "v2_8";
  o.order_seeds = {6};
  Module a = load_artifact("mlp_adam"), b = load_artifact("mlp_adam");
  const Outcome two = check_graph(a);
  const Outcome one = check_graph(b, o);
  for (size_t i = 0; i < one.results[0].size(); ++i) {
    EXPECT_EQ(one.results[0][i].data, two.results[0][i].data) << "result " << i;
  }
}

TEST(MnistStep, CompilesToTheSameBytesEveryTime) {
  const spec::BoardParams board = spec::load_board("v3_8", {"core.vmem_kib=2048"});
  std::vector<std::byte> first;
  for (int i = 0; i < 3; ++i) {
    Module m = import_vhlo_file(std::string(TPU_EXAMPLES) + "/mnist_mlp/train_step.mlirbc");
    run_passes(m, canonical_passes());
    const std::vector<std::byte> bytes = exe::write_executable(generate(m, board));
    EXPECT_TRUE(first.empty() || bytes == first) << i;
    first = bytes;
  }
}

TEST(MnistStep, SpillsAndStreamsInLittleVmem) {
  Module m = import_vhlo_file(std::string(TPU_EXAMPLES) + "/mnist_mlp/train_step.mlirbc");
  run_passes(m, canonical_passes());
  RunOptions o;
  o.order_seeds = {4};
  o.low = 0;
  o.high = 0.05;
  o.overrides = {"core.vmem_kib=1024"};
  check_graph(m, o);
}

TEST(MnistStep, TrainsAndEvaluatesAsTheGraphSays) {
  for (const char* name : {"train_step", "eval_step"}) {
    Module m = import_vhlo_file(std::string(TPU_EXAMPLES) + "/mnist_mlp/" + name + ".mlirbc");
    run_passes(m, canonical_passes());
    RunOptions o;
    o.order_seeds = {3};
    o.low = 0;  // second moments of Adam are not negative
    o.high = 0.05;
    const Outcome out = check_graph(m, o);
    EXPECT_LT(out.commands, 400) << name;
  }
}

}  // namespace
}  // namespace tpu::compiler::test
