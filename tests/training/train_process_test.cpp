// `tpuboard train` as a process of its own on the simulated board: stopped by a signal, killed, out
// of disk space, and resumed. Nothing here depends on how long anything takes.
#include "tests/training/train_process.hpp"

#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <thread>

namespace tpu::driver {
namespace {

using test::Ended;
using test::Json;
using test::TrainProcess;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(TrainProcess, ASignalSavesAndTheRunGoesOnWithTheSameBits) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const Ended ended = train(
        "a", {}, [&](pid_t child, int epochs) { return epochs >= 2 && kill(child, signal) == 0; });
    ASSERT_TRUE(WIFEXITED(ended.status)) << ended.text;
    EXPECT_EQ(WEXITSTATUS(ended.status), 128 + signal);
    EXPECT_THAT(ended.text, HasSubstr("stopped after step"));
    EXPECT_THAT(ended.text, HasSubstr("checkpoint: " + path("a/checkpoint")));
    const Json json = report("a");
    EXPECT_EQ(json["stopped_by"], signal == SIGTERM ? "SIGTERM" : "SIGINT");
    EXPECT_EQ(json["steps"], newest("a"));
  }
  expect_resumes("a");
}

// The steps that are under way when the signal comes are ended, and none behind them begins.
TEST_F(TrainProcess, CtrlCInTheMiddleOfAStepLosesNoStep) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  std::vector<std::string> options;
  int64_t before = 0;
  for (int trial = 0; trial < 4; ++trial) {
    SCOPED_TRACE("trial " + std::to_string(trial));
    const auto delay = std::chrono::microseconds(random() % 20'000);
    const Ended ended = train("a", options, [&](pid_t child, int epochs) {
      if (epochs < 2) {
        return false;
      }
      std::this_thread::sleep_for(delay);
      return kill(child, SIGINT) == 0;
    });
    ASSERT_TRUE(WIFEXITED(ended.status)) << ended.text;
    EXPECT_EQ(WEXITSTATUS(ended.status), 128 + SIGINT);
    const int64_t saved = newest("a");
    ASSERT_GT(saved, before);
    EXPECT_EQ(rows_up_to("a", saved), saved) << "rows of steps that the checkpoint holds";
    EXPECT_EQ(report("a")["losses"].size(), static_cast<size_t>(saved));
    before = saved;
    options = {"--resume"};
  }
  expect_resumes("a");
}

TEST_F(TrainProcess, ARunGoesOnOnAnotherBoardWithTheSameBits) {
  ASSERT_EQ(train("a", {"--steps", "5"}).status, 0);
  const Ended resumed = train("a", {"--resume", "--steps", "9", "--board", "v2_8"});
  EXPECT_EQ(resumed.status, 0) << resumed.text;
  EXPECT_THAT(resumed.text, HasSubstr("the checkpoint was made on board v3_8, the run continues "
                                      "with v2_8: the bits are the same, the cycles are not"));
  ASSERT_EQ(train("straight", {"--steps", "9"}).status, 0);
  EXPECT_EQ(report("a")["digest"], report("straight")["digest"]);
  EXPECT_EQ(report("a")["losses"], report("straight")["losses"]);
}

// As under nohup: the terminal may go away while the state is saved.
TEST_F(TrainProcess, AHangUpThatTheCallerIgnoresDoesNotEndTheSaving) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  bool stopping = false;
  const Ended ended = train("out", {}, [&](pid_t child, int epochs) {
    if (epochs >= 2) {
      kill(child, stopping ? SIGHUP : SIGTERM);
      stopping = true;
    }
    return false;
  });
  std::signal(SIGHUP, before);
  EXPECT_FALSE(WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGHUP) << ended.text;
  EXPECT_EQ(report("out")["stopped_by"], "SIGTERM");
  EXPECT_GE(newest("out"), 1);
}

// Killed at any moment while checkpoints are written without end, again and again: the newest one
// is complete each time, and the run that goes on from it has the bits of one that never stopped.
// TPU_KILL_TRIALS: how often.
TEST_F(TrainProcess, ARunKilledWhileSavingGoesOnFromItsNewestCheckpoint) {
  const char* chosen = std::getenv("TPU_KILL_TRIALS");
  const int trials = chosen != nullptr ? std::atoi(chosen) : 5;
  constexpr unsigned kSeed = 20240613;
  std::mt19937 random(kSeed);
  std::vector<std::string> options = {"--checkpoint-every", "1"};
  int64_t before = 0;
  int half_written = 0;
  for (int trial = 0; trial < trials; ++trial) {
    SCOPED_TRACE("trial " + std::to_string(trial));
    const auto delay = std::chrono::microseconds(random() % 30'000);
    const Ended ended = train("a", options, [&](pid_t child, int epochs) {
      if (epochs < 2) {  // the first may have been ended by the run before
        return false;
      }
      std::this_thread::sleep_for(delay);
      return kill(child, SIGKILL) == 0;
    });
    ASSERT_TRUE(WIFSIGNALED(ended.status)) << ended.text;
    for (const auto& file : std::filesystem::directory_iterator(path("a/checkpoint"))) {
      half_written += file.path().extension() == ".part" ? 1 : 0;
    }
    const int64_t saved = newest("a");
    ASSERT_GT(saved, before);
    before = saved;
    options = {"--checkpoint-every", "1", "--resume"};
  }
  std::printf("%d trials, %d of them killed in the middle of a file, %lld steps\n", trials,
              half_written, static_cast<long long>(before));
  expect_resumes("a");
}

// 4 steps an epoch; a launch ends with its epoch. The host takes 14 ms for each launch.
TEST_F(TrainProcess, StepsOfOneLaunchHaveTheBitsOfLaunchesAndSpareTheirDispatch) {
  constexpr double kDispatch = 14e-3;
  const auto run = [&](const std::string& steps) {
    const Ended ended = train(steps, {"--steps", "8", "--steps-per-execution", steps, "--set",
                                      "host.dispatch_cycles=13160000"});
    EXPECT_EQ(ended.status, 0) << ended.text;
    return report(steps);
  };
  const Json single = run("1");
  for (const auto& [steps, launches] : {std::pair<const char*, double>{"4", 1}, {"3", 2}}) {
    const Json many = run(steps);
    EXPECT_EQ(many["digest"], single["digest"]);
    EXPECT_EQ(many["losses"], single["losses"]);
    EXPECT_EQ(many["epochs"], single["epochs"]);
    const double spared =
        single["sim_seconds_per_step"].get<double>() - many["sim_seconds_per_step"].get<double>();
    const double dispatch = kDispatch * (1 - launches / 4);
    EXPECT_NEAR(spared, dispatch, 0.01 * dispatch) << steps;
  }
}

// A limit of file sizes stands for a full disk: the first checkpoints fit, later ones do not.
TEST_F(TrainProcess, AFullDiskKeepsTheCheckpointBefore) {
  ASSERT_EQ(train("first", {"--steps", "20"}).status, 0);
  const auto first = std::filesystem::file_size(path("first/checkpoint/step20.safetensors"));
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{.rlim_cur = first + 500, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Ended ended = train("a", {"--checkpoint-every", "20", "--steps", "160"});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  ASSERT_TRUE(WIFEXITED(ended.status)) << ended.text;
  EXPECT_EQ(WEXITSTATUS(ended.status), 1);
  EXPECT_THAT(ended.text, HasSubstr("cannot be written: File too large; make room"));
  const int64_t kept = newest("a");
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, 160);
  EXPECT_THAT(ended.text, HasSubstr("the checkpoint of step 160 was not written: "));
  EXPECT_THAT(ended.text, HasSubstr("the state after step " + std::to_string(kept) + " is in " +
                                    path("a/checkpoint") + "; continue"));
  for (const auto& file : std::filesystem::directory_iterator(path("a/checkpoint"))) {
    EXPECT_EQ(file.path().extension(), ".safetensors");
  }
}

TEST_F(TrainProcess, AFullDiskEndsTheRunWhereThatIsWanted) {
  std::ofstream(path("c.toml"), std::ios::app) << "checkpoint_errors = \"stop\"\n";
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{.rlim_cur = 100, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Ended ended = train("a", {"--checkpoint-every", "4"});  // would go on for a million epochs
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  ASSERT_TRUE(WIFEXITED(ended.status)) << ended.text;
  EXPECT_EQ(WEXITSTATUS(ended.status), 1);
  EXPECT_THAT(ended.text, HasSubstr("the checkpoint of step 4 was not written: "));
  EXPECT_THAT(ended.text, HasSubstr("cannot be written: File too large; make room"));
}

TEST_F(TrainProcess, CheckpointsAreWrittenByTime) {
  const Ended ended = train("a", {"--checkpoint-seconds", "1"}, [&](pid_t child, int epochs) {
    return epochs > 0 && training::newest_checkpoint(path("a/checkpoint")) &&
           kill(child, SIGKILL) == 0;
  });
  ASSERT_TRUE(WIFSIGNALED(ended.status)) << ended.text;
  expect_resumes("a");
}

TEST_F(TrainProcess, MoreClassesThanTheProgramHasAreRefused) {
  std::ifstream file(path("c.toml"));
  std::string config{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  config.replace(config.find("classes = 4\n"), 12, "classes = 5\n");
  std::ofstream(path("c.toml")) << config;
  const Ended ended = train("a", {"--steps", "1"});
  EXPECT_EQ(WEXITSTATUS(ended.status), 1);
  EXPECT_THAT(ended.text, HasSubstr("c.toml: data.classes is 5, but "));
  EXPECT_THAT(ended.text, HasSubstr("mlp_sgd.mlirbc encodes the labels with the 4 classes 0 to 3"));
}

// not_finite.mlirbc: every column of the examples goes through an op of its own.
class NotFiniteProcess : public TrainProcess {
 protected:
  // What a run says when column `column` of example `example` is `value`.
  Ended run(size_t example, size_t column, float value, const std::vector<std::string>& more = {}) {
    std::vector<float> images(80 * 6);
    for (size_t i = 0; i < images.size(); ++i) {
      images[i] = i % 6 == 5 ? -1.0f : 0.5f + static_cast<float>(i % 7) / 7.0f;
    }
    images[example * 6 + column] = value;
    write_npy(path("images.npy"), HostView(DType::kF32, {80, 6}, std::as_bytes(std::span(images))));
    std::ofstream(path("c.toml")) << "[program]\ntrain = \"" << TPU_TEST_DATA
                                  << "/not_finite.mlirbc\"\n"
                                  << R"([state]
seed = 1
init = ["ones*5"]
[data]
images = "images.npy"
labels = "labels.npy"
split_seed = 7
eval_count = 0
[run]
batch = 16
epochs = 2
)";
    Ended ended = train("a", more);
    EXPECT_EQ(WEXITSTATUS(ended.status), 1) << ended.text;
    return ended;
  }
};

TEST_F(NotFiniteProcess, TheOperationIsNamedWithItsLine) {
  const struct {
    size_t column;
    float value;
    const char* text;
    const char* leaf;
  } cases[] = {
      {0, 0, "stablehlo.log at export_not_finite.py:22:22 (jit(step)/jvp()/log) makes infinite",
       "state leaf 0 (w['log'])"},
      {1, 0, "stablehlo.divide at export_not_finite.py:23:33 (jit(step)/jvp()/div) makes NaN",
       "state leaf 2 (w['quotient'])"},
      {2, 100,
       "stablehlo.exponential at export_not_finite.py:24:26 (jit(step)/jvp()/exp) makes inf",
       "state leaf 1 (w['power'])"},
      {4, -1, "stablehlo.subtract at export_not_finite.py:21:13 (jit(step)/jvp()/sub) makes NaN",
       "state leaf 4 (w['shares'])"},
  };
  for (const auto& one : cases) {
    const Ended ended = run(33, one.column, one.value);
    EXPECT_THAT(ended.text, HasSubstr("step 5: the loss is "));
    EXPECT_THAT(ended.text, HasSubstr(std::string("\nstep 5: ") + one.text));
    EXPECT_THAT(ended.text, HasSubstr("(1 of 8 cores: 6)\n"));
    EXPECT_THAT(ended.text,
                HasSubstr(std::string("\nnot finite behind step 5: ") + one.leaf + "\n"));
  }
}

TEST_F(NotFiniteProcess, AGradientThatIsNotFiniteIsFoundInTheStepBeforeTheLoss) {
  const Ended ended = run(33, 3, 0, {"--checkpoint-every", "3"});
  EXPECT_THAT(ended.text, HasSubstr("step 6: the loss is nan"));
  EXPECT_THAT(ended.text, HasSubstr("steps 4 to 6 are run again"));
  EXPECT_THAT(ended.text, HasSubstr("\nstep 5: stablehlo.divide at export_not_finite.py:25:12 "));
  EXPECT_THAT(ended.text, HasSubstr("not finite behind step 5: state leaf 3 (w['root'])\n"));
}

TEST_F(NotFiniteProcess, ACheckpointWithAStateThatIsNotFiniteIsNotBelieved) {
  const Ended ended = run(33, 3, 0, {"--checkpoint-every", "5"});
  EXPECT_THAT(ended.text, HasSubstr("the checkpoint of step 5 holds a state that is not finite\n"
                                    "step 5: stablehlo.divide at export_not_finite.py:25:12 "));
  EXPECT_THAT(ended.text, HasSubstr("\nstep5.safetensors in " + path("a/checkpoint") +
                                    ": state leaf 3 is not finite either; no earlier state is "
                                    "left to continue from; start again"));
  EXPECT_THAT(ended.text, Not(HasSubstr("continue with --resume")));
}

TEST_F(NotFiniteProcess, TheLastFiniteCheckpointIsNamed) {
  const Ended ended = run(33, 3, 0, {"--checkpoint-every", "1"});
  EXPECT_THAT(ended.text, HasSubstr("\nstep5.safetensors in " + path("a/checkpoint") +
                                    ": state leaf 3 is not finite either; without this file "
                                    "--resume continues after step 4"));
  std::filesystem::remove(path("a/checkpoint/step5.safetensors"));
  EXPECT_THAT(train("a", {"--resume", "--steps", "5"}).text, HasSubstr("resumed at step 4"));
}

TEST_F(NotFiniteProcess, AnExampleThatIsNotFiniteIsNamed) {
  EXPECT_THAT(run(33, 0, NAN).text,
              HasSubstr("\nstep 5: the images of its examples are not finite"));
}

// A checkpoint takes the place of older ones.
TEST_F(TrainProcess, AnInputInTheFolderOfTheCheckpointIsKept) {
  std::filesystem::create_directories(path("a/checkpoint"));
  std::filesystem::rename(path("labels.npy"), path("a/checkpoint/step3.safetensors"));
  std::ifstream file(path("c.toml"));
  std::string config{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  config.replace(config.find("labels.npy"), 10, "a/checkpoint/step3.safetensors");
  std::ofstream(path("c.toml")) << config;
  const Ended ended = train("a", {"--steps", "1"});
  EXPECT_EQ(WEXITSTATUS(ended.status), 1);
  EXPECT_THAT(
      ended.text,
      HasSubstr("a/checkpoint/step3.safetensors: the checkpoints of this run would replace"));
  EXPECT_TRUE(std::filesystem::exists(path("a/checkpoint/step3.safetensors")));
}

// The program compares its labels with 0 to 3, so that nobody needs to say how many classes it has.
TEST_F(TrainProcess, ALabelThatTheProgramWouldLoseIsNamed) {
  std::ifstream file(path("c.toml"));
  std::string config{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  config.replace(config.find("classes = 4\n"), 12, "");
  std::ofstream(path("c.toml")) << config;
  EXPECT_EQ(train("a", {"--steps", "1"}).status, 0);
  std::vector<int32_t> labels(80, 3);
  labels[17] = 4;
  write_npy(path("labels.npy"), HostView(DType::kI32, {80}, std::as_bytes(std::span(labels))));
  const Ended ended = train("b", {"--steps", "1"});
  EXPECT_EQ(WEXITSTATUS(ended.status), 1);
  EXPECT_THAT(ended.text, HasSubstr("label 4 of example 17 is outside of the 4 classes, 0 to 3 ("));
  EXPECT_THAT(ended.text, HasSubstr("mlp_sgd.mlirbc)"));
}

TEST_F(TrainProcess, StandardOutputThatCannotBeWrittenIsAFailureButLosesNothing) {
  const std::string command = std::string(TPUBOARD) + " train " + path("c.toml") + " --out " +
                              path("a") + " --steps 8 > /dev/full 2> " + path("errors");
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  std::string text;
  std::getline(std::ifstream(path("errors")), text);
  EXPECT_THAT(text, HasSubstr("standard output: cannot be written"));
  EXPECT_EQ(newest("a"), 8);
}

}  // namespace
}  // namespace tpu::driver
