// One configuration on one core and on all of the board: programs of no mesh are cut over the
// cores.
#include <cmath>
#include <cstring>

#include "tests/training/train_process.hpp"

namespace tpu::driver {
namespace {

using test::Ended;
using test::Json;
using test::TrainProcess;
using ::testing::HasSubstr;

constexpr int64_t kExamples = 160;

// Of training steps on cores against those of one program (tests/e2e/train_cases.py).
constexpr double kBound = 1e-3;

class TrainCores : public TrainProcess {
 protected:
  // `program`: file name in tests/data. Images of 12 or of 8 x 8 numbers.
  void configure(const std::string& program, const Shape& image, const std::string& init,
                 const std::string& more = "") {
    Shape shape = image;
    shape.insert(shape.begin(), kExamples);
    std::vector<float> images(element_count(shape));
    std::vector<int32_t> labels(kExamples);
    constexpr unsigned kSeed = 3;
    std::mt19937 random(kSeed);
    for (int32_t& label : labels) {
      label = static_cast<int32_t>(random() % 4);
    }
    for (size_t i = 0; i < images.size(); ++i) {
      images[i] = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
    }
    write_npy(path("images.npy"), HostView(DType::kF32, shape, std::as_bytes(std::span(images))));
    write_npy(path("labels.npy"),
              HostView(DType::kI32, {kExamples}, std::as_bytes(std::span(labels))));
    std::ofstream(path("c.toml")) << "[program]\ntrain = \"" << TPU_TEST_DATA << "/" << program
                                  << ".mlirbc\"\n"
                                  << more << "[state]\nseed = 1\ninit = [" << init << "]\n"
                                  << R"([data]
images = "images.npy"
labels = "labels.npy"
split_seed = 7
eval_count = 24
[run]
batch = 16
epochs = 1
checkpoint = "checkpoint"
)";
  }

  Json trained(const std::string& out, std::vector<std::string> more) const {
    const Ended ended = train(out, more);
    EXPECT_EQ(ended.status, 0) << ended.text;
    return report(out);
  }

  std::vector<std::vector<float>> state(const std::string& out, int64_t step) const {
    const auto checkpoint = training::read_checkpoint(
        path(out + "/checkpoint/step" + std::to_string(step) + ".safetensors"));
    std::vector<std::vector<float>> leaves;
    for (const HostArray& leaf : checkpoint.leaves) {
      std::vector<float>& values = leaves.emplace_back(leaf.bytes.size() / sizeof(float));
      std::memcpy(values.data(), leaf.bytes.data(), leaf.bytes.size());
    }
    return leaves;
  }

  // Losses and final state of runs with the same batch.
  void expect_same(const Json& one, const Json& all) const {
    ASSERT_EQ(one["losses"].size(), 8u);
    ASSERT_EQ(all["losses"].size(), 8u);
    for (size_t i = 0; i < 8; ++i) {
      const auto loss = one["losses"][i].get<double>();
      EXPECT_NEAR(all["losses"][i].get<double>(), loss, kBound * loss) << i;
    }
    const auto mine = state("one", 8);
    const auto theirs = state("all", 8);
    ASSERT_EQ(mine.size(), theirs.size());
    for (size_t leaf = 0; leaf < mine.size(); ++leaf) {
      double apart = 0;
      double size = 0;
      for (size_t i = 0; i < mine[leaf].size(); ++i) {
        apart += std::pow(mine[leaf][i] - theirs[leaf][i], 2);
        size += std::pow(mine[leaf][i], 2);
      }
      EXPECT_GT(size, 0) << leaf;
      EXPECT_LE(std::sqrt(apart), kBound * std::sqrt(size)) << "state leaf " << leaf;
    }
  }
};

const std::string kMlpInit =
    R"("zeros", "he_normal", "zeros", "he_normal", "zeros", "he_normal", "zeros*6")";

TEST_F(TrainCores, AnMlpTrainsOnOneCoreAndOnAllOfThemAlike) {
  configure("whole_mlp_16", {12}, kMlpInit,
            std::string("eval = \"") + TPU_TEST_DATA + "/whole_mlp_eval.mlirbc\"\n");
  const Json one = trained("one", {"--cores", "1"});
  const Json all = trained("all", {"--cores", "8"});
  EXPECT_EQ(one["cores"], 1);
  EXPECT_EQ(all["cores"], 8);
  expect_same(one, all);
  EXPECT_EQ(one["test_accuracy"], all["test_accuracy"]);
  EXPECT_NEAR(one["test_loss"].get<double>(), all["test_loss"].get<double>(), kBound);
  // What it does of its own accord: on one core.
  EXPECT_EQ(trained("plain", {})["digest"], one["digest"]);
}

TEST_F(TrainCores, AConvolutionalNetworkTrainsOnOneCoreAndOnAllOfThemAlike) {
  configure("whole_cnn", {8, 8, 1}, R"("zeros", "he_normal", "he_normal", "zeros*3")");
  expect_same(trained("one", {"--cores", "1"}), trained("all", {"--cores", "8"}));
}

// 128 examples a step: 136 examples are one step.
TEST_F(TrainCores, TheBatchGrowsWithTheCoresWhereThatIsWanted) {
  configure("whole_mlp_{batch}", {12}, kMlpInit);
  const Json one = trained("one", {"--cores", "1", "--scale-batch"});
  const Json all = trained("all", {"--cores", "8", "--scale-batch"});
  EXPECT_EQ(one["losses"].size(), 8u);
  EXPECT_EQ(all["losses"].size(), 1u);
  const Ended resumed = train("all", {"--resume", "--cores", "8", "--epochs", "2"});
  EXPECT_NE(resumed.status, 0);
  EXPECT_THAT(resumed.text, HasSubstr("run.batch is 16, the checkpoint was made with 128"));
}

// The state of one number of cores goes on with another one.
TEST_F(TrainCores, ARunGoesOnWithAnotherNumberOfCores) {
  configure("whole_mlp_16", {12}, kMlpInit);
  const Json one = trained("one", {"--cores", "1"});
  trained("all", {"--cores", "8", "--steps", "4"});
  const Ended resumed = train("all", {"--resume", "--cores", "1"});
  EXPECT_EQ(resumed.status, 0) << resumed.text;
  EXPECT_THAT(resumed.text,
              HasSubstr("the checkpoint was made with 8 cores, the run continues with 1"));
  expect_same(one, report("all"));
}

// mlp_momentum.mlirbc is the same step for eight cores, made by jax.shard_map.
TEST_F(TrainCores, ARunGoesOnWithAnotherProgramOnlyWhereThatIsMeant) {
  configure("whole_mlp_16", {12}, kMlpInit);
  trained("all", {"--cores", "8", "--steps", "4"});
  std::vector<std::string> other = {
      "--resume", "--with", std::string("program.train=") + TPU_TEST_DATA + "/mlp_momentum.mlirbc"};
  const Ended refused = train("all", other);
  EXPECT_EQ(WEXITSTATUS(refused.status), 1);
  EXPECT_THAT(refused.text, HasSubstr("the run cannot continue from the checkpoint in "));
  EXPECT_THAT(refused.text, HasSubstr("program.train holds another program"));
  EXPECT_EQ(newest("all"), 4);
  other.emplace_back("--accept-changes");
  const Ended accepted = train("all", other);
  EXPECT_EQ(accepted.status, 0) << accepted.text;
  EXPECT_THAT(accepted.text,
              HasSubstr("the run continues with a change: the file of program.train"));
  EXPECT_EQ(newest("all"), 8);
}

// The search for the operation runs the program as it was cut.
TEST_F(TrainCores, WhatIsNotFiniteIsFoundOnAllCores) {
  configure("whole_mlp_16", {12}, kMlpInit);
  std::vector<float> images(kExamples * 12, 1.0f);
  images[50 * 12] = INFINITY;
  write_npy(path("images.npy"),
            HostView(DType::kF32, {kExamples, 12}, std::as_bytes(std::span(images))));
  const Ended ended = train("all", {"--cores", "8", "--epochs", "2"});
  EXPECT_EQ(WEXITSTATUS(ended.status), 1);
  EXPECT_THAT(ended.text, HasSubstr("the images of its examples are not finite (1 of 8 cores: "));
}

}  // namespace
}  // namespace tpu::driver
