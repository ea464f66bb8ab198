// `tpuboard train` on the null board: its files, the training loop, texts of errors. Launches
// compute nothing there, so donated state comes back as it was and losses are zero.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.hpp"
#include "file/files.hpp"
#include "format/npy.hpp"
#include "tests/cli/cli_fixture.hpp"

namespace tpu::driver {
namespace {

using test::Cli;
using test::counting;
using test::ProgramBuilder;

class CliTrain : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    ProgramBuilder train(8);
    train.argument(DType::kF32, {});
    train.argument(DType::kF32, {4, 3});
    train.argument(DType::kF32, {16, 4}, true);
    train.argument(DType::kI32, {16}, true);
    train.result(DType::kF32, {}, false, 0);
    train.result(DType::kF32, {4, 3}, false, 1);
    train.result(DType::kF32, {});
    write_file(path("train.tpuexe"), train.bytes());
    ProgramBuilder eval(8);
    eval.argument(DType::kF32, {});
    eval.argument(DType::kF32, {4, 3});
    eval.argument(DType::kF32, {24, 4}, true);
    eval.argument(DType::kI32, {24}, true);
    eval.argument(DType::kF32, {24}, true);
    eval.result(DType::kF32, {}, false, 0);  // "correct" is state leaf 0, one a batch
    write_file(path("eval.tpuexe"), eval.bytes());
    write_npy(path("images.npy"), counting(DType::kU8, {100, 2, 2}));
    save("labels.u8", std::string(100, '\3'));
    save("c.toml", kConfig);
  }

  std::vector<std::string> train_call(const std::string& out) const {
    return {"train", path("c.toml"), "--transport", "null", "--out", path(out)};
  }

  static constexpr const char* kConfig = R"([program]
train = "train.tpuexe"
eval = "eval.tpuexe"
[state]
seed = 3
init = ["ones", "he_normal"]
[data]
images = "images.npy"
labels = "labels.u8"
split_seed = 7
eval_count = 30
[run]
batch = 16
epochs = 3
checkpoint = "ck"
)";
};

TEST_F(CliTrain, RunsEpochsAndWritesReportAndCheckpoint) {
  ASSERT_EQ(call(train_call("a")), 0) << error_;
  auto json = nlohmann::json::parse(std::ifstream(path("a/run.json")));
  EXPECT_EQ(json["steps"], 12);  // 70 examples: 4 batches an epoch
  EXPECT_EQ(json["epochs"].size(), 3u);
  EXPECT_DOUBLE_EQ(json["test_accuracy"], 2.0 / 30);  // two batches of 24
  EXPECT_EQ(json["losses"].size(), 12u);
  EXPECT_EQ(json["step_seconds"].size(), 12u);
  const training::Checkpoint end = training::read_checkpoint(path("a/ck/step12.safetensors"));
  EXPECT_EQ(end.leaves.at(0).shape, Shape{});
  EXPECT_EQ(end.leaves.at(1).shape, (Shape{4, 3}));
  EXPECT_EQ(json["checkpoints"]["written"], 1);
  ASSERT_EQ(call(train_call("b")), 0) << error_;
  EXPECT_EQ(json["digest"], nlohmann::json::parse(std::ifstream(path("b/run.json")))["digest"]);

  // A leaf goes in again by file:, with another seed nothing else differs.
  write_npy(path("w.npy"), end.leaves[1]);
  std::string config = kConfig;
  config.replace(config.find("\"he_normal\""), 11, "\"file:w.npy\"");
  config.replace(config.find("seed = 3"), 8, "seed = 4");
  save("c.toml", config);
  ASSERT_EQ(call(train_call("c")), 0) << error_;
  EXPECT_EQ(json["digest"], nlohmann::json::parse(std::ifstream(path("c/run.json")))["digest"]);
  config.replace(config.find("\"file:w.npy\""), 12, "\"he_normal\"");
  save("c.toml", config);
  ASSERT_EQ(call(train_call("d")), 0) << error_;
  EXPECT_NE(json["digest"], nlohmann::json::parse(std::ifstream(path("d/run.json")))["digest"]);
}

TEST_F(CliTrain, WritesMetricsOfEachStepAndAPage) {
  auto arguments = train_call("a");
  arguments.insert(arguments.end(), {"--steps", "5"});
  ASSERT_EQ(call(arguments), 0) << error_;
  arguments = train_call("a");
  arguments.emplace_back("--resume");
  ASSERT_EQ(call(arguments), 0) << error_;
  std::ifstream csv(path("a/metrics.csv"));
  std::string line;
  ASSERT_TRUE(std::getline(csv, line));
  // The transport null does not tell for how long cores run: no idle_percent.
  EXPECT_EQ(line, "step,epoch,loss,step_us,mxu_percent,host_ms,input_ms");
  for (int step = 1; step <= 12; ++step) {
    ASSERT_TRUE(std::getline(csv, line)) << step;
    EXPECT_EQ(line.find(std::to_string(step) + "," + std::to_string((step + 3) / 4) + ",0,"), 0u)
        << line;
  }
  EXPECT_FALSE(std::getline(csv, line));
  const auto page = read_file(path("a/report.html"));
  const std::string html(reinterpret_cast<const char*>(page.data()), page.size());
  EXPECT_NE(html.find("mxu_percent"), std::string::npos);
  EXPECT_NE(html.find("test_accuracy"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(path("a/tensorboard")));
}

TEST_F(CliTrain, AnInputIsNotReplacedByMetrics) {
  save("a.txt", "");
  std::filesystem::create_directories(path("a"));
  std::filesystem::rename(path("labels.u8"), path("a/metrics.csv"));
  std::string config = kConfig;
  config.replace(config.find("labels.u8"), 9, "a/metrics.csv");
  save("c.toml", config);
  EXPECT_EQ(call(train_call("a")), 1);
  EXPECT_NE(error_.find("a/metrics.csv"), std::string::npos) << error_;
  EXPECT_EQ(read_file(path("a/metrics.csv")).size(), 100u);
}

TEST_F(CliTrain, TheRateFinderWantsALearningRate) {
  auto arguments = train_call("a");
  arguments.emplace_back("--find-learning-rate");
  EXPECT_EQ(call(arguments), 1);
  EXPECT_NE(error_.find("the program takes no learning rate; give [learning_rate]"),
            std::string::npos)
      << error_;
  arguments.emplace_back("--no-data");
  EXPECT_EQ(call(arguments), 2);
}

TEST_F(CliTrain, WithoutDataThereAreNoLossesAndNoAccuracy) {
  auto arguments = train_call("a");
  arguments.emplace_back("--no-data");
  ASSERT_EQ(call(arguments), 0) << error_;
  EXPECT_EQ(out_.find("loss"), std::string::npos) << out_;
  EXPECT_EQ(out_.find("accuracy"), std::string::npos) << out_;
  const auto json = nlohmann::json::parse(std::ifstream(path("a/run.json")));
  EXPECT_EQ(json["steps"], 12);
  EXPECT_TRUE(json["test_accuracy"].is_null());
  EXPECT_TRUE(json["train_loss"].is_null());
  EXPECT_TRUE(json["losses"].empty());
}

TEST_F(CliTrain, StepsOfALaunchAreAtLeastOne) {
  auto arguments = train_call("a");
  for (const char* steps : {"0", "-3", "1000001", "2.5"}) {
    arguments.insert(arguments.end(), {"--steps-per-execution", steps});
    EXPECT_EQ(call(arguments), 2) << steps;
    EXPECT_NE(error_.find("--steps-per-execution"), std::string::npos) << error_;
    arguments.resize(arguments.size() - 2);
  }
  for (const char* steps : {"0", "1000001", "\"all\""}) {
    save("c.toml", std::string(kConfig) + "steps_per_execution = " + steps + "\n");
    EXPECT_EQ(call(arguments), 1) << steps;
    EXPECT_NE(error_.find("c.toml:16: "), std::string::npos) << error_;
    EXPECT_NE(error_.find("run.steps_per_execution"), std::string::npos) << error_;
  }
}

// Without data there is no state that would be worth a checkpoint: a good one is not replaced.
TEST_F(CliTrain, WithoutDataTheCheckpointStays) {
  ASSERT_EQ(call(train_call("a")), 0) << error_;
  const auto before = read_file(path("a/ck/step12.safetensors"));
  auto arguments = train_call("a");
  arguments.insert(arguments.end(), {"--no-data", "--steps", "3"});
  ASSERT_EQ(call(arguments), 0) << error_;
  EXPECT_NE(error_.find("no checkpoint is written"), std::string::npos) << error_;
  EXPECT_EQ(read_file(path("a/ck/step12.safetensors")), before);
  arguments.emplace_back("--resume");
  EXPECT_EQ(call(arguments), 2);
}

TEST_F(CliTrain, ResumeGoesOnFromTheCheckpoint) {
  auto arguments = train_call("a");
  arguments.emplace_back("--resume");
  EXPECT_EQ(call(arguments), 1);
  EXPECT_NE(error_.find("a/ck: no checkpoint to resume from"), std::string::npos) << error_;
  auto first = train_call("a");
  first.insert(first.end(), {"--steps", "5"});
  ASSERT_EQ(call(first), 0) << error_;
  ASSERT_EQ(call(arguments), 0) << error_;
  EXPECT_NE(out_.find("resumed at step 5"), std::string::npos) << out_;
  const auto json = nlohmann::json::parse(std::ifstream(path("a/run.json")));
  EXPECT_EQ(json["steps"], 12);
  EXPECT_EQ(json["first_step"], 5);
  EXPECT_EQ(json["losses"].size(), 12u);
  EXPECT_EQ(json["step_seconds"].size(), 7u);
  EXPECT_EQ(json["epochs"].size(), 3u);
  // What is done is done: nothing more to run, and the same figures.
  ASSERT_EQ(call(arguments), 0) << error_;
  const auto again = nlohmann::json::parse(std::ifstream(path("a/run.json")));
  EXPECT_EQ(again["digest"], json["digest"]);
  EXPECT_EQ(again["epochs"], json["epochs"]);
  EXPECT_TRUE(again["sim_seconds_per_step"].is_null());
}

TEST_F(CliTrain, ACheckpointLeavesOtherFilesAlone) {
  std::filesystem::create_directories(path("a/ck"));
  save("a/ck/thesis.txt", "mine");
  ASSERT_EQ(call(train_call("a")), 0) << error_;
  EXPECT_TRUE(std::filesystem::exists(path("a/ck/thesis.txt")));
  std::filesystem::remove_all(path("a/ck"));
  save("a/ck", "a file");
  EXPECT_EQ(call(train_call("a")), 1);
  EXPECT_NE(error_.find("a/ck: cannot create this folder"), std::string::npos) << error_;
}

TEST_F(CliTrain, TheConfigurationSaysWhichCheckpointsStay) {
  std::string config = kConfig;
  config += R"(checkpoint_every = 3
checkpoint_keep = 3
checkpoint_best = "largest accuracy"
checkpoint_errors = "stop"
eval_every = 1
)";
  save("c.toml", config);
  ASSERT_EQ(call(train_call("a")), 0) << error_;
  const auto json = nlohmann::json::parse(std::ifstream(path("a/run.json")))["checkpoints"];
  EXPECT_EQ(json["best"]["step"], 4);  // as good as those of the later epochs
  EXPECT_EQ(json["written"], 5);       // 3, 4, 6, 9, 12
  for (const auto& [step, there] :
       std::map<int, bool>{{3, false}, {4, true}, {6, true}, {9, true}, {12, true}}) {
    EXPECT_EQ(std::filesystem::exists(path("a/ck/step" + std::to_string(step) + ".safetensors")),
              there)
        << step;
  }
}

TEST_F(CliTrain, OtherDataAreRefusedUnlessAccepted) {
  auto first = train_call("a");
  first.insert(first.end(), {"--steps", "5"});
  ASSERT_EQ(call(first), 0) << error_;
  write_npy(path("images.npy"), HostArray{DType::kU8, {100, 2, 2}, std::vector<std::byte>(400)});
  auto arguments = train_call("a");
  arguments.emplace_back("--resume");
  EXPECT_EQ(call(arguments), 1);
  EXPECT_NE(error_.find("the run cannot continue from the checkpoint in "), std::string::npos);
  EXPECT_NE(error_.find("the examples are others"), std::string::npos) << error_;
  arguments.emplace_back("--accept-changes");
  ASSERT_EQ(call(arguments), 0) << error_;
  EXPECT_NE(error_.find("the run continues with a change: the examples"), std::string::npos);
  arguments.erase(arguments.end() - 2);
  EXPECT_EQ(call(arguments), 2);
}

TEST_F(CliTrain, ADamagedCheckpointIsPassedOver) {
  auto arguments = train_call("a");
  arguments.insert(arguments.end(), {"--checkpoint-every", "5"});
  ASSERT_EQ(call(arguments), 0) << error_;
  const auto whole = nlohmann::json::parse(std::ifstream(path("a/run.json")));
  save("a/ck/step12.safetensors", "damaged");
  arguments.emplace_back("--resume");
  ASSERT_EQ(call(arguments), 0) << error_;
  EXPECT_NE(out_.find("resumed at step 10"), std::string::npos) << out_;
  EXPECT_NE(error_.find("the one before it is taken: step10.safetensors"), std::string::npos)
      << error_;
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(path("a/run.json")))["digest"], whole["digest"]);
}

TEST_F(CliTrain, WeightsOfAFileGoBeforeTheInitialState) {
  ASSERT_EQ(call(train_call("a")), 0) << error_;
  const auto json = nlohmann::json::parse(std::ifstream(path("a/run.json")));
  std::string config = kConfig;
  config.replace(config.find("seed = 3"), 8, "seed = 4\nweights = \"a/ck/step12.safetensors\"");
  save("c.toml", config);
  ASSERT_EQ(call(train_call("b")), 0) << error_;
  EXPECT_EQ(json["digest"], nlohmann::json::parse(std::ifstream(path("b/run.json")))["digest"]);
  EXPECT_EQ(call(train_call("a")), 1);
  EXPECT_NE(error_.find("step12.safetensors: the checkpoints of this run would replace this input"),
            std::string::npos)
      << error_;
  config.replace(config.find("weights = "), 10, "weights_map = \"m.toml\"\nweights = ");
  save("c.toml", config);
  save("m.toml", "\"state.1\" = 0\n");
  EXPECT_EQ(call(train_call("b")), 1);
  EXPECT_NE(error_.find("tensor \"state.1\" is F32 [4,3], but state leaf 0 is f32[]"),
            std::string::npos)
      << error_;
  config.erase(config.find("\nweights = "), 36);
  save("c.toml", config);
  EXPECT_EQ(call(train_call("b")), 1);
  EXPECT_NE(error_.find("state.weights_map needs state.weights"), std::string::npos) << error_;
}

TEST_F(CliTrain, TheStateToBeginWithIsNotReplaced) {
  ASSERT_EQ(call(train_call("a")), 0) << error_;
  std::string config = kConfig;
  const std::string init = "init = [\"ones\", \"he_normal\"]";
  config.replace(config.find(init), init.size(), "from = \"a/ck\"");
  save("c.toml", config);
  EXPECT_EQ(call(train_call("a")), 1);
  EXPECT_NE(error_.find("step12.safetensors: the checkpoints of this run would replace this input"),
            std::string::npos)
      << error_;
  EXPECT_EQ(call(train_call("b")), 0) << error_;
}

TEST_F(CliTrain, TwoRunsDoNotShareAFolder) {
  ASSERT_EQ(call(train_call("a")), 0) << error_;
  {
    const FolderLock other(path("a"));
    EXPECT_EQ(call(train_call("a")), 1);
    EXPECT_NE(error_.find("a: another run writes there; give each run its own folder"),
              std::string::npos)
        << error_;
    ASSERT_EQ(call(train_call("b")), 0) << error_;
  }
  ASSERT_EQ(call(train_call("a")), 0) << error_;
}

TEST_F(CliTrain, AFullDiskIsAFailureAndTheOtherResultsAreWritten) {
  auto arguments = train_call("a");
  arguments.insert(arguments.end(), {"--json", "/dev/full"});
  EXPECT_EQ(call(arguments), 1);
  EXPECT_NE(error_.find("/dev/full: cannot be written: No space left"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(path("a/run.json")));
  EXPECT_TRUE(std::filesystem::exists(path("a/ck/step12.safetensors")));
  arguments.back() = "-";
  ASSERT_EQ(call(arguments), 0) << error_;
  EXPECT_EQ(nlohmann::json::parse(out_), nlohmann::json::parse(std::ifstream(path("a/run.json"))));
  EXPECT_NE(error_.find("epoch   1"), std::string::npos) << error_;
}

// The programs are compiled for 8 cores.
TEST_F(CliTrain, TrainsOnOneCoreOrOnAllOfTheBoard) {
  const auto with = [&](const std::vector<std::string>& more) {
    auto arguments = train_call("a");
    arguments.insert(arguments.end(), more.begin(), more.end());
    return call(arguments);
  };
  for (const char* cores : {"2", "4", "7", "16"}) {
    EXPECT_EQ(with({"--cores", cores}), 1);
    EXPECT_NE(error_.find(std::string("the number of cores must be either 1 or 8, got ") + cores +
                          " instead"),
              std::string::npos)
        << error_;
  }
  for (const char* cores : {"0", "-1", "all"}) {
    EXPECT_EQ(with({"--cores", cores}), 2) << cores;
  }
  EXPECT_EQ(with({"--cores", "1"}), 1);
  EXPECT_NE(error_.find("train.tpuexe: compiled for 8 cores, but run.cores (--cores) is 1; give "
                        "the .mlirbc that it was compiled from"),
            std::string::npos)
      << error_;
  ASSERT_EQ(with({"--cores", "8"}), 0) << error_;
  EXPECT_NE(out_.find("8 cores, 16 examples a step"), std::string::npos) << out_;
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(path("a/run.json")))["cores"], 8);
  EXPECT_EQ(with({"--cores", "8", "--scale-batch"}), 1);
  EXPECT_NE(error_.find("must be the images, f32, bf16 or ui8 [128,...], not f32[16,4]; "
                        "run.scale_batch (--scale-batch) makes a batch of 128 for 8 cores: export "
                        "the program for it"),
            std::string::npos)
      << error_;
  EXPECT_EQ(with({"--scale-batch"}), 1);
  EXPECT_NE(error_.find("run.scale_batch needs run.cores"), std::string::npos) << error_;
}

// Linear scaling is for a batch that grows with the cores.
TEST_F(CliTrain, TheRateScalesWithTheBatch) {
  save("c.toml", std::string(kConfig) +
                     "[learning_rate]\nvalue = 0.5\nscale_with_cores = true\nleaf = \"0\"\n");
  const auto with = [&](const std::vector<std::string>& more) {
    auto arguments = train_call("a");
    arguments.insert(arguments.end(), {"--steps", "1", "--cores", "8"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    ASSERT_EQ(call(arguments), 0) << error_;
    std::ifstream csv(path("a/metrics.csv"));
    std::string line;
    std::getline(csv, line);
    EXPECT_EQ(line.find("step,epoch,loss,learning_rate,"), 0u) << line;
    std::getline(csv, line);
    EXPECT_EQ(line.find("1,1,0,4,"), 0u) << line;
  };
  const std::string note = "makes the learning rate 8 times as large, and the batch of 16 stays";
  with({});
  EXPECT_NE(error_.find(note), std::string::npos) << error_;
  with({"--scale-batch", "--with", "run.batch=2"});
  EXPECT_EQ(error_.find(note), std::string::npos) << error_;
  EXPECT_NE(out_.find("8 cores, 16 examples a step"), std::string::npos) << out_;
}

TEST_F(CliTrain, AnArtifactWithCoresOfItsOwnKeepsThem) {
  std::string config = kConfig;
  config.replace(config.find("train.tpuexe"), 12, TPU_TEST_DATA "/mlp_sgd.mlirbc");
  save("c.toml", config);
  auto arguments = train_call("a");
  arguments.insert(arguments.end(), {"--cores", "1"});
  EXPECT_EQ(call(arguments), 1);
  EXPECT_NE(error_.find("mlp_sgd.mlirbc: the program says itself that it runs on 8 cores, but "
                        "run.cores (--cores) is 1; export it without a mesh"),
            std::string::npos)
      << error_;
}

TEST_F(CliTrain, StepsAndEpochsCutTheRun) {
  auto arguments = train_call("a");
  arguments.insert(arguments.end(), {"--steps", "5", "--epochs", "2"});
  ASSERT_EQ(call(arguments), 0) << error_;
  const auto json = nlohmann::json::parse(std::ifstream(path("a/run.json")));
  EXPECT_EQ(json["steps"], 5);
  EXPECT_EQ(json["epochs"].size(), 2u);
}

TEST_F(CliTrain, NamesWhatDoesNotFitTheConvention) {
  const auto refused = [&](const std::string& from, const std::string& to,
                           const std::string& text) {
    std::string config = kConfig;
    config.replace(config.find(from), from.size(), to);
    save("c.toml", config);
    EXPECT_EQ(call(train_call("x")), 1);
    EXPECT_NE(error_.find(text), std::string::npos) << error_;
  };
  refused("\"ones\", ", "", "state.init has 1 entries, halt_program has 2 state leaves");
  refused("batch = 16", "batch = 8", "must be the images, f32, bf16 or ui8 [8,...]");
  refused("\"eval.tpuexe\"", "\"train.tpuexe\"", "eval program takes the first state leaves");
  refused("\"train.tpuexe\"", "\"eval.tpuexe\"", "a train program takes state leaves");
  refused("labels.u8", "missing.u8", "missing.u8: cannot be opened");
  refused("eval_count = 30", "eval_count = 30\nclasses = 3",
          "labels.u8: label 3 of example 0 is outside of the 3 classes, 0 to 2 (data.classes)");
  refused("epochs = 3", "epochs = 9223372036854775807", "run.epochs must be at most");
  refused("checkpoint = \"ck\"", "checkpoint = \".\"", "must name a folder of its own");
  refused("epochs = 3", "epochs = 3\ncheckpoint_best = \"accuracy\"",
          "run.checkpoint_best must be \"largest METRIC\"");
  refused("epochs = 3", "epochs = 3\ncheckpoint_errors = \"ignore\"",
          "run.checkpoint_errors must be \"warn\" or \"stop\"");
  refused("epochs = 3", "epochs = 3\ncheckpoint_keep = 0",
          "run.checkpoint_keep must be an integer");
  refused("labels.u8", "images.npy", "400 labels for 100 images");
  refused("eval_count = 30", "eval_count = 100", "leaves no example of 100 for training");
  refused("eval_count = 30", "eval_count = 90", "10 training examples are less than one batch");
  refused("he_normal", "file:images.npy", "state leaf 1 must be f32[4,3], the file holds");
  refused("train.tpuexe", "train.mlirbc", "train.mlirbc: cannot be opened");
}

}  // namespace
}  // namespace tpu::driver
