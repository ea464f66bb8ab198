// The training loop on the null board, with a small program that computes on the host: the order
// of its floating-point sums shows every change of state, data and their order in the bits.
#include "loop/trainer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "format/npy.hpp"
#include "loop/initial_state.hpp"
#include "loop/replays.hpp"
#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"
#include "transport/null/null_transport.hpp"

namespace tpu::driver {
namespace {

using training::Checkpoint;
using training::EpochResult;
using training::EvalResult;
using training::InitKind;
using training::kMaxEpochs;
using training::Progress;
using training::read_checkpoint;
using training::Replicas;
using training::state_digest;
using training::TrainConfig;
using training::Trainer;
using training::TrainHooks;
using training::TrainLimits;
using training::write_checkpoint;

using test::counting;
using test::ProgramBuilder;
using ::testing::HasSubstr;

constexpr int64_t kBatch = 16;
constexpr int64_t kEvalBatch = 24;
constexpr int64_t kPixels = 4;
constexpr size_t kCores = 8;

template <typename Number>
std::vector<Number> numbers(NullLaunchPart& part, size_t slot) {
  std::vector<Number> values(part.slots[slot].size / sizeof(Number));
  part.hbm->read(part.slots[slot].base, std::as_writable_bytes(std::span(values)));
  return values;
}

void put_number(NullLaunchPart& part, size_t slot, float value) {
  part.hbm->write(part.slots[slot].base, std::as_bytes(std::span(&value, 1)));
}

class TrainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("tpu_trainer_") + info->name() + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    HostArray images = counting(DType::kU8, {100, 2, 2});
    std::vector<int32_t> labels;
    for (int32_t i = 0; i < 100; ++i) {
      labels.push_back(i % 3);
    }
    save(images, labels);
    config_.inputs = training::classifier_inputs(path("images.npy"), path("labels.npy"));
    config_.seed = 3;
    config_.split_seed = 7;
    config_.eval_count = 30;
    config_.batch = kBatch;
    config_.epochs = 3;
    config_.eval_every = 2;
    config_.init = {{InitKind::kOnes, {}}};
    board_ = test::open_null(null_);
    null_->executor = [this](NullLaunch& launch) { return execute(launch); };
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void save(const HostArray& images, const std::vector<int32_t>& labels) {
    write_npy(path("images.npy"), images);
    write_npy(path("labels.npy"), HostView(DType::kI32, {static_cast<int64_t>(labels.size())},
                                           std::as_bytes(std::span(labels))));
  }

  Executable train_program(int64_t pixels = kPixels) {
    ProgramBuilder train(kCores);
    train.argument(DType::kF32, {});
    train.argument(DType::kF32, {kBatch, pixels}, true);
    train.argument(DType::kI32, {kBatch}, true);
    train.result(DType::kF32, {}, false, 0);
    train.result(DType::kF32, {});
    return board_.load(train.bytes());
  }

  Executable eval_program(int64_t pixels = kPixels, DType dtype = DType::kF32) {
    ProgramBuilder eval(kCores);
    eval.argument(DType::kF32, {});
    eval.argument(dtype, {kEvalBatch, pixels}, true);
    eval.argument(DType::kI32, {kEvalBatch}, true);
    eval.argument(DType::kF32, {kEvalBatch}, true);
    eval.result(DType::kF32, {});
    return board_.load(eval.bytes());
  }

  // A train launch has the slots state (which it updates), images, labels, loss; an eval launch one
  // more argument.
  std::optional<tpu_fault_record_t> execute(NullLaunch& launch) {
    std::vector<float> images;
    std::vector<int32_t> labels;
    std::vector<float> mask;
    const size_t eval = numbers<float>(launch.parts[0], 3).size() > 1 ? 1 : 0;
    for (NullLaunchPart& part : launch.parts) {
      const auto pixels = numbers<float>(part, 1);
      const auto classes = numbers<int32_t>(part, 2);
      images.insert(images.end(), pixels.begin(), pixels.end());
      labels.insert(labels.end(), classes.begin(), classes.end());
      if (eval != 0) {
        const auto ones = numbers<float>(part, 3);
        mask.insert(mask.end(), ones.begin(), ones.end());
      }
    }
    return eval != 0 ? execute_eval(launch, images, labels, mask)
                     : execute_train(launch, images, labels);
  }

  std::optional<tpu_fault_record_t> execute_train(NullLaunch& launch,
                                                  const std::vector<float>& images,
                                                  const std::vector<int32_t>& labels) {
    if (++train_launches_ == fault_at_) {
      tpu_fault_record_t fault{};
      fault.code = TPU_FAULT_SLOT_RANGE;
      return fault;
    }
    const float before = numbers<float>(launch.parts[0], 0)[0];
    float state = before;
    for (size_t i = 0; i < images.size(); ++i) {
      const auto label = static_cast<float>(labels[i / static_cast<size_t>(kPixels)] + 1);
      state = state * 0.99f + images[i] * label;
    }
    for (NullLaunchPart& part : launch.parts) {
      put_number(part, 0, state);
      put_number(part, 3, state - before);
    }
    return std::nullopt;
  }

  // A model that always says class 0: padding, which has label 0, would be right.
  std::optional<tpu_fault_record_t> execute_eval(NullLaunch& launch,
                                                 const std::vector<float>& images,
                                                 const std::vector<int32_t>& labels,
                                                 const std::vector<float>& mask) {
    float correct = 0;
    for (size_t i = 0; i < labels.size(); ++i) {
      correct += labels[i] == 0 ? mask[i] : 0.0f;
    }
    for (NullLaunchPart& part : launch.parts) {
      put_number(part, 4, correct);
    }
    masks_.push_back(mask);
    eval_images_.push_back(images);
    return std::nullopt;
  }

  TrainHooks hooks() {
    TrainHooks made;
    made.stop_wanted = [this] { return stop_at_ >= 0 && asked_++ >= stop_at_; };
    return made;
  }

  // All bits that a run leaves, as a text that can be compared.
  static std::string outcome(Trainer& trainer) {
    const Checkpoint end = trainer.checkpoint();
    std::string text = state_digest(end.leaves);
    for (const float loss : end.losses) {
      uint32_t bits = 0;
      std::memcpy(&bits, &loss, sizeof(bits));
      text += " " + std::to_string(bits);
    }
    for (const EpochResult& epoch : trainer.epochs()) {
      text += "\n" + std::to_string(epoch.epoch) + " " + std::to_string(epoch.train_loss) + " " +
              (epoch.eval ? std::to_string(epoch.eval->find("accuracy").value()) : "-");
    }
    return text;
  }

  std::string refusal(const Executable& train, const std::optional<Executable>& eval) {
    try {
      const Trainer trainer(board_, config_, train, eval);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.message();
    }
    return "accepted";
  }

  std::filesystem::path folder_;
  TrainConfig config_;
  NullTransport* null_ = nullptr;
  Board board_;
  int64_t stop_at_ = -1;  // after so many steps
  int64_t asked_ = 0;
  int train_launches_ = 0;
  int fault_at_ = 0;
  std::vector<std::vector<float>> masks_;
  std::vector<std::vector<float>> eval_images_;
};

// 30 examples in batches of 24: the second one has 18 rows of padding with label 0, which the
// model of this test "predicts".
TEST_F(TrainerTest, PaddingOfTheLastEvaluationBatchDoesNotCount) {
  Trainer trainer(board_, config_, train_program(), eval_program());
  const EvalResult result = trainer.evaluate();
  ASSERT_EQ(masks_.size(), 2u);
  std::vector<float> expected(kEvalBatch, 1.0f);
  EXPECT_EQ(masks_[0], expected);
  std::fill(expected.begin() + 6, expected.end(), 0.0f);
  EXPECT_EQ(masks_[1], expected);
  for (size_t i = 6 * kPixels; i < eval_images_[1].size(); ++i) {
    EXPECT_EQ(eval_images_[1][i], 0.0f) << i;
  }
  const auto& held_out = trainer.data().eval_order();
  const auto zeros =
      std::count_if(held_out.begin(), held_out.end(), [](uint32_t i) { return i % 3 == 0; });
  EXPECT_DOUBLE_EQ(result.find("accuracy").value(), static_cast<double>(zeros) / 30);
}

// Stopped at every point where a run asks: before its 12 steps (4 an epoch) and before the
// evaluations behind epochs 2 and 3.
TEST_F(TrainerTest, AResumedRunHasTheBitsOfOneWithoutAStop) {
  Trainer whole(board_, config_, train_program(), eval_program());
  EXPECT_TRUE(whole.train({}, hooks()));
  const std::string expected = outcome(whole);
  for (int64_t stop = 0; stop < 14; ++stop) {
    stop_at_ = stop;
    asked_ = 0;
    Trainer first(board_, config_, train_program(), eval_program());
    EXPECT_FALSE(first.train({}, hooks())) << stop;
    const std::string file = path("checkpoint.safetensors");
    write_checkpoint(file, first.checkpoint());
    stop_at_ = -1;
    const Checkpoint from = read_checkpoint(file);
    EXPECT_LE(from.step, 12);
    Trainer second(board_, config_, train_program(), eval_program(), true, &from);
    EXPECT_TRUE(second.train({}, hooks()));
    EXPECT_EQ(outcome(second), expected) << "stopped after " << stop;
    EXPECT_EQ(second.steps_run(), 12 - from.step);
  }
}

// Checkpoints on the way do not change the bits; each of them is a place to go on from, also when
// the first run was shorter.
TEST_F(TrainerTest, CheckpointsOnTheWayAreWhole) {
  Trainer whole(board_, config_, train_program(), eval_program());
  whole.train({}, hooks());
  const std::string expected = outcome(whole);
  std::vector<Checkpoint> saved;
  Trainer trainer(board_, config_, train_program(), eval_program());
  TrainHooks with = hooks();
  with.save = [&] { saved.push_back(trainer.checkpoint()); };
  EXPECT_TRUE(trainer.train({.max_steps = 0, .checkpoint_every = 2}, with));
  EXPECT_EQ(outcome(trainer), expected);
  ASSERT_EQ(saved.size(), 5u);  // the end is the owner's
  Trainer shorter(board_, config_, train_program(), eval_program());
  shorter.train({.max_steps = 7}, hooks());
  saved.push_back(shorter.checkpoint());
  for (const Checkpoint& from : saved) {
    Trainer second(board_, config_, train_program(), eval_program(), true, &from);
    EXPECT_TRUE(second.train({}, hooks()));
    EXPECT_EQ(outcome(second), expected) << from.step;
  }
}

TEST_F(TrainerTest, AnotherTrainingBeginsWithTheStateOfACheckpoint) {
  Trainer first(board_, config_, train_program(), eval_program());
  first.train({.max_steps = 3}, hooks());
  const Checkpoint end = first.checkpoint();
  write_checkpoint(path("step3.safetensors"), end);
  config_.state_from = folder_.string();
  config_.init.clear();
  Trainer second(board_, config_, train_program(), eval_program());
  EXPECT_EQ(state_digest(second.state()), state_digest(end.leaves));
  EXPECT_EQ(second.first_step(), 0);
}

// Some rules make one value for all elements, which the board gets without an array on the host.
TEST_F(TrainerTest, EveryRuleMakesTheLeafThatItSays) {
  const std::vector<std::pair<DType, Shape>> types = {{DType::kF32, {3, 5}},
                                                      {DType::kBf16, {4}},
                                                      {DType::kI32, {7, 2}},
                                                      {DType::kF32, {2, 3}},
                                                      {DType::kF32, {}}};
  config_.init = {{InitKind::kOnes, {}},
                  {InitKind::kConstant, {}, 2.5},
                  {InitKind::kConstant, {}, -3},
                  {InitKind::kHeNormal, {}},
                  {InitKind::kZeros, {}}};
  ProgramBuilder program(kCores);
  for (const auto& [dtype, shape] : types) {
    program.argument(dtype, shape);
  }
  program.argument(DType::kF32, {kBatch, kPixels}, true);
  program.argument(DType::kI32, {kBatch}, true);
  for (size_t i = 0; i < types.size(); ++i) {
    program.result(types[i].first, types[i].second, false, static_cast<int>(i));
  }
  program.result(DType::kF32, {});
  Trainer trainer(board_, config_, board_.load(program.bytes()), std::nullopt);
  const std::vector<HostArray> state = trainer.state();
  ASSERT_EQ(state.size(), types.size());
  for (size_t i = 0; i < state.size(); ++i) {
    const HostArray expected =
        training::initial_leaf(config_.init[i], types[i].first, types[i].second, config_.seed, i);
    EXPECT_EQ(state[i].dtype, expected.dtype) << i;
    EXPECT_EQ(state[i].shape, expected.shape) << i;
    EXPECT_EQ(state[i].bytes, expected.bytes) << i;
  }
  EXPECT_EQ(trainer.digest(), state_digest(state));
}

// Each save looks at one other replica, so that seven of them have seen all.
TEST_F(TrainerTest, AReplicaThatDiffersIsFoundWithinSomeCheckpoints) {
  Trainer trainer(board_, config_, train_program(), eval_program());
  null_->executor = [this](NullLaunch& launch) {
    const auto fault = execute(launch);
    put_number(launch.parts[5], 0, 1e6f);
    return fault;
  };
  std::vector<std::string> said;
  TrainHooks with = hooks();
  with.save = [&] {
    try {
      trainer.checkpoint(Replicas::kOne);
      said.emplace_back();
    } catch (const Error& error) {
      said.push_back(error.message());
    }
  };
  EXPECT_TRUE(trainer.train({.max_steps = 8, .checkpoint_every = 1}, with));
  ASSERT_EQ(said.size(), 7u);
  for (size_t i = 0; i < said.size(); ++i) {
    EXPECT_EQ(said[i].empty(), i < 4) << i << ": " << said[i];  // replicas 1, 2, 3, 4, 5, 5, 5
  }
  EXPECT_THAT(said[4], HasSubstr("state leaf 0 differs between cores 0 and 5 at element []"));
  EXPECT_THROW(trainer.checkpoint(), Error);  // at the end all are compared
}

// The copy of core 5 is another one behind step 3, once: the run with replay has the bits of the
// one without the fault.
TEST_F(TrainerTest, ComparedReplicasAreNamedAndTheRunGoesBack) {
  const auto run = [&](int wrong_launch, std::vector<std::string>& said) {
    train_launches_ = 0;
    Trainer trainer(board_, config_, train_program(), eval_program());
    null_->executor = [this, wrong_launch](NullLaunch& launch) {
      const auto fault = execute(launch);
      if (train_launches_ == wrong_launch) {
        put_number(launch.parts[5], 0, 1e6f);
      }
      return fault;
    };
    TrainHooks with = hooks();
    with.replayed = [&](const Error& why, int64_t to) {
      EXPECT_EQ(why.code(), ErrorCode::kDataLoss);
      EXPECT_EQ(why.place().device, 5);
      said.push_back(std::to_string(to) + ": " + why.message());
    };
    try {
      EXPECT_TRUE(trainer.train({.max_steps = 8, .checkpoint_every = 2}, with));
      return outcome(trainer);
    } catch (const Error& error) {
      said.push_back(error.message());
      return std::string();
    }
  };
  std::vector<std::string> said;
  const std::string clean = run(0, said);
  EXPECT_TRUE(said.empty());
  config_.faults.compare_replicas = 1;
  EXPECT_EQ(run(0, said), clean);
  EXPECT_TRUE(said.empty());
  EXPECT_EQ(run(3, said), "");
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], HasSubstr("run.compare_replicas: behind step 3, state leaf 0"));
  EXPECT_THAT(said[0], HasSubstr("differs between cores 0 and 5 at element []"));
  config_.faults.replay = true;
  said.clear();
  EXPECT_EQ(run(3, said), clean);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], HasSubstr("2: run.compare_replicas: behind step 3, state leaf 0"));
  config_.steps_per_execution = 4;
  config_.faults.compare_replicas = 3;
  said.clear();
  EXPECT_EQ(run(0, said), clean);
  EXPECT_TRUE(said.empty());
}

// As a flip that an all-reduce spreads: the copy of core 5 differs behind step 3, and all others
// are wrong as well from then on. Checkpoints with one compared copy, which would look at core 5
// behind step 5 only, are no places to go back to.
TEST_F(TrainerTest, ARunGoesBackOnlyToCheckpointsWhoseCopiesAllAgree) {
  bool damaged = false;
  std::vector<int64_t> back_to;
  const auto run = [&](int wrong_launch) {
    train_launches_ = 0;
    Trainer trainer(board_, config_, train_program(), eval_program());
    null_->executor = [&, wrong_launch](NullLaunch& launch) {
      const auto fault = execute(launch);
      damaged = damaged || train_launches_ == wrong_launch;
      for (size_t core = 0; damaged && core < launch.parts.size(); ++core) {
        const float state = numbers<float>(launch.parts[core], 0)[0];
        put_number(launch.parts[core], 0, core == 5 ? 1e6f : state + 1);
      }
      return fault;
    };
    TrainHooks with = hooks();
    with.save = [&] { trainer.checkpoint(Replicas::kOne); };
    with.replayed = [&](const Error& /*why*/, int64_t to) {
      damaged = false;
      back_to.push_back(to);
    };
    EXPECT_TRUE(trainer.train({.max_steps = 8, .checkpoint_every = 1}, with));
    return outcome(trainer);
  };
  config_.faults.replay = true;
  const std::string clean = run(0);
  EXPECT_TRUE(back_to.empty());
  EXPECT_EQ(run(3), clean);
  EXPECT_THAT(back_to, ::testing::ElementsAre(2));
}

// Behind step 3 again in the replay, which is launch 4.
TEST_F(TrainerTest, ADifferenceIsCountedBehindTheStepThatItNames) {
  config_.faults.replay = true;
  config_.faults.compare_replicas = 1;
  Trainer trainer(board_, config_, train_program(), eval_program());
  null_->executor = [this](NullLaunch& launch) {
    const auto fault = execute(launch);
    if (train_launches_ == 3 || train_launches_ == 4) {
      put_number(launch.parts[5], 0, 1e6f);
    }
    return fault;
  };
  try {
    trainer.train({.max_steps = 8, .checkpoint_every = 2}, hooks());
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("behind step 3, state leaf 0"));
    EXPECT_THAT(error.message(), HasSubstr("failed at the same place again (step 3, device 5,"));
  }
}

// The memory of the host, too, may be damaged: a run does not go back to that.
TEST_F(TrainerTest, ADamagedCheckpointInMemoryIsNotUsed) {
  training::Replays replays({.replay = true}, nullptr);
  EXPECT_EQ(replays.undamaged(), nullptr);
  Checkpoint made;
  made.step = 6;
  made.leaves = {counting(DType::kF32, {4})};
  replays.keep(made);
  ASSERT_NE(replays.undamaged(), nullptr);
  const_cast<Checkpoint*>(replays.kept())->leaves[0].bytes[5] ^= std::byte{1};
  try {
    replays.undamaged();
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_THAT(error.message(), HasSubstr("the checkpoint of step 6 is damaged in the memory"));
  }
}

TEST_F(TrainerTest, TheStateIsOnTheBoardBeforeTheTimeOfStepsBegins) {
  const Trainer trainer(board_, config_, train_program(), eval_program());
  const uint64_t now = board_.now();
  board_.synchronize();
  EXPECT_EQ(board_.now(), now);
}

// 4 steps an epoch: the last launch of one may be shorter, and launches end where a checkpoint is
// due.
TEST_F(TrainerTest, StepsOfOneLaunchHaveTheBitsOfLaunches) {
  Trainer whole(board_, config_, train_program(), eval_program());
  whole.train({}, hooks());
  const std::string expected = outcome(whole);
  for (const int64_t steps : {2, 3, 4, 100}) {
    config_.steps_per_execution = steps;
    std::vector<Checkpoint> saved;
    Trainer trainer(board_, config_, train_program(), eval_program());
    TrainHooks with = hooks();
    with.save = [&] { saved.push_back(trainer.checkpoint()); };
    EXPECT_TRUE(trainer.train({.max_steps = 0, .checkpoint_every = 3}, with));
    EXPECT_EQ(outcome(trainer), expected) << steps;
    ASSERT_EQ(saved.size(), 3u) << steps;
    for (const Checkpoint& from : saved) {
      EXPECT_EQ(from.step % 3, 0);
      Trainer second(board_, config_, train_program(), eval_program(), true, &from);
      EXPECT_TRUE(second.train({}, hooks()));
      EXPECT_EQ(outcome(second), expected) << steps << " from " << from.step;
    }
  }
}

// It is asked between launches.
TEST_F(TrainerTest, ARunOfManyStepsALaunchStopsBehindALaunch) {
  config_.steps_per_execution = 3;
  stop_at_ = 3;  // before the second launch of the second epoch
  Trainer trainer(board_, config_, train_program(), eval_program());
  EXPECT_FALSE(trainer.train({}, hooks()));
  EXPECT_EQ(trainer.steps_run(), 7);
  EXPECT_EQ(trainer.checkpoint().step, 7);
}

TEST_F(TrainerTest, AFaultInALaunchOfManyStepsLeavesNothingToRescue) {
  config_.steps_per_execution = 4;
  fault_at_ = 6;
  Trainer trainer(board_, config_, train_program(), eval_program());
  EXPECT_THROW(trainer.train({}, hooks()), Error);
  EXPECT_EQ(trainer.losses().size(), 5u);
  EXPECT_FALSE(trainer.rescue().has_value());
  fault_at_ = 0;
  Trainer next(board_, config_, train_program(), eval_program());
  EXPECT_TRUE(next.train({}, hooks()));
}

TEST_F(TrainerTest, ACheckpointOfAnotherOrderIsRefused) {
  Trainer trainer(board_, config_, train_program(), eval_program());
  trainer.train({.max_steps = 5}, hooks());
  Checkpoint from = trainer.checkpoint();
  const auto refused = [&](const TrainConfig& config, TrainLimits limits = {}) -> std::string {
    try {
      Trainer second(board_, config, train_program(), eval_program(), true, &from);
      second.train(limits, hooks());
    } catch (const Error& error) {
      return error.message();
    }
    return "accepted";
  };
  TrainConfig other = config_;
  other.split_seed = 8;
  EXPECT_THAT(refused(other), HasSubstr("data.split_seed is 8, the checkpoint was made with 7"));
  other = config_;
  other.eval_count = 31;
  EXPECT_THAT(refused(other), HasSubstr("data.eval_count is 31"));
  EXPECT_THAT(refused(config_, {.max_steps = 4}), HasSubstr("is at step 5; 4 steps are requested"));
  other = config_;
  other.epochs = 1;
  Trainer longer(board_, config_, train_program(), eval_program());
  longer.train({}, hooks());
  from = longer.checkpoint();
  EXPECT_EQ(refused(other), "the checkpoint is at step " + std::to_string(from.step) + "; " +
                                std::to_string(from.step / config_.epochs) +
                                " steps are requested; give more --steps or epochs, or leave "
                                "--resume out");
}

TEST_F(TrainerTest, AnEvalProgramOfOtherCoresIsRefused) {
  ProgramBuilder eval(1);
  eval.argument(DType::kF32, {});
  eval.argument(DType::kF32, {kEvalBatch, kPixels});
  eval.argument(DType::kI32, {kEvalBatch});
  eval.argument(DType::kF32, {kEvalBatch});
  eval.result(DType::kF32, {});
  try {
    const Trainer trainer(board_, config_, train_program(), board_.load(eval.bytes(), 0));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("argument 0, f32[], is sharded over the program's 1 "
                                           "cores differently than state leaf 0 on the 8 of"));
    EXPECT_THAT(error.message(), HasSubstr("compile both for the same cores (--cores)"));
  }
}

// The best evaluation is saved when it is there, whatever else is due, and is known to a run that
// goes on.
TEST_F(TrainerTest, TheBestEvaluationIsSaved) {
  config_.eval_every = 1;
  config_.checkpoints.best = "largest accuracy";
  config_.checkpoints.best_metric = "accuracy";
  config_.checkpoints.best_rises = true;
  Trainer trainer(board_, config_, train_program(), eval_program());
  std::vector<Checkpoint> saved;
  TrainHooks with = hooks();
  with.save = [&] { saved.push_back(trainer.checkpoint()); };
  EXPECT_TRUE(trainer.train({}, with));
  ASSERT_EQ(saved.size(), 1u);  // this model is as right in every epoch
  EXPECT_EQ(saved[0].step, 4);
  EXPECT_EQ(saved[0].epochs.size(), 1u);
  ASSERT_TRUE(saved[0].best);
  EXPECT_EQ(saved[0].best->step, 4);
  EXPECT_EQ(saved[0].best->value, saved[0].epochs[0].eval->find("accuracy").value());
  Trainer second(board_, config_, train_program(), eval_program(), true, saved.data());
  EXPECT_EQ(second.best()->step, 4);
  EXPECT_TRUE(second.train({}, with));
  EXPECT_EQ(saved.size(), 1u);
  config_.checkpoints.best_metric = "bleu";
  EXPECT_THAT(refusal(train_program(), eval_program()),
              HasSubstr("the eval program's metrics are accuracy"));
  EXPECT_THAT(refusal(train_program(), std::nullopt),
              HasSubstr("checkpoint_best wants an evaluation"));
}

// The reads of three losses are on their way when the error comes; they may end at any later time.
TEST_F(TrainerTest, AnErrorWhileLossesAreReadLeavesTheBoardUsable) {
  for (const bool fault : {false, true}) {
    fault_at_ = fault ? train_launches_ + 6 : 0;
    {
      Trainer trainer(board_, config_, train_program(), eval_program());
      TrainHooks with = hooks();
      with.step = [&](const Progress& at) {
        if (!fault && at.step == 2) {
          throw std::runtime_error("no room for the progress");
        }
      };
      EXPECT_THROW(trainer.train({}, with), std::runtime_error);
      const std::optional<Checkpoint> rest = trainer.rescue();
      EXPECT_EQ(rest.has_value(), !fault);  // a fault loses the state, other errors do not
      if (rest) {
        EXPECT_GT(rest->step, 2);
        EXPECT_EQ(rest->losses.size(), static_cast<size_t>(rest->step));
      }
    }
    board_.synchronize();
    fault_at_ = 0;
    Trainer next(board_, config_, train_program(), eval_program());
    EXPECT_TRUE(next.train({}, hooks()));
  }
}

// The batch of a step that cannot start was read already: the checkpoint stands behind the step
// before it, and so does its input.
TEST_F(TrainerTest, AStepThatCannotStartLeavesACheckpointToGoOnFrom) {
  Trainer whole(board_, config_, train_program(), eval_program());
  whole.train({}, hooks());
  const std::string expected = outcome(whole);
  for (const int64_t steps : {1, 2}) {
    config_.steps_per_execution = steps;
    std::optional<Checkpoint> rest;
    {
      Trainer trainer(board_, config_, train_program(), eval_program());
      std::vector<Buffer> all;
      TrainHooks with;
      with.stop_wanted = [&] {
        while (trainer.steps_run() >= 2 && board_.devices()[0].hbm_largest_free >= 512) {
          const auto bytes = static_cast<int64_t>(board_.devices()[0].hbm_largest_free);
          all.push_back(board_.zeros(0, DType::kU8, {bytes}));
        }
        return false;
      };
      EXPECT_THROW(trainer.train({}, with), Error);
      rest = trainer.rescue();
    }
    ASSERT_TRUE(rest) << steps;
    EXPECT_EQ(input::Position::parse(rest->input).next, static_cast<uint64_t>(rest->step));
    Trainer second(board_, config_, train_program(), eval_program(), true, &*rest);
    EXPECT_TRUE(second.train({}, hooks()));
    EXPECT_EQ(outcome(second), expected) << steps;
  }
}

// Nothing has waited when the error comes, so that the board reads the losses when the trainer is
// gone: a sanitizer or valgrind sees it when their memory is gone too.
TEST_F(TrainerTest, LossesThatNobodyWaitsForAreReadIntoLivingMemory) {
  {
    Trainer trainer(board_, config_, train_program(), eval_program());
    int asked = 0;
    TrainHooks with;
    with.stop_wanted = [&]() -> bool {
      if (++asked == 3) {
        throw std::runtime_error("stop");
      }
      return false;
    };
    EXPECT_THROW(trainer.train({}, with), std::runtime_error);
    EXPECT_EQ(train_launches_, 0);
  }
  board_.synchronize();
  EXPECT_EQ(train_launches_, 2);
}

TEST_F(TrainerTest, ImagesWithoutValuesAreRefused) {
  EXPECT_THAT(refusal(train_program(0), std::nullopt), HasSubstr("have no values"));
  save(HostArray{DType::kF32, {100, 0}, {}}, std::vector<int32_t>(100));
  EXPECT_THAT(refusal(train_program(0), std::nullopt), HasSubstr("have no values"));
  EXPECT_THAT(refusal(train_program(), std::nullopt),
              HasSubstr("does not hold examples of 4 values"));
  save(HostArray{DType::kF32, {0, 4}, {}}, {});
  EXPECT_THAT(refusal(train_program(), std::nullopt), HasSubstr("0 examples"));
  save(HostArray{DType::kF32, {int64_t{1} << 62, 0}, {}}, {});
  EXPECT_THAT(refusal(train_program(), std::nullopt), HasSubstr("does not hold examples"));
}

// More pixels than the file has, or a type that it cannot become, would be read and written beside
// the arrays.
TEST_F(TrainerTest, EvalImagesMustFitTheFileToo) {
  EXPECT_THAT(refusal(train_program(), eval_program(5)), HasSubstr("examples of 4 values are not"));
  save(HostArray{DType::kF32, {100, 4}, std::vector<std::byte>(1600)}, std::vector<int32_t>(100));
  EXPECT_THAT(refusal(train_program(), eval_program(kPixels, DType::kU8)),
              HasSubstr("f32 cannot be converted to the program's ui8"));
}

TEST_F(TrainerTest, LabelsOutsideTheClassesAreNamed) {
  const HostArray images = counting(DType::kU8, {100, 2, 2});
  std::vector<int32_t> labels(100, 2);
  labels[41] = 3;
  save(images, labels);
  EXPECT_EQ(refusal(train_program(), std::nullopt), "accepted");
  config_.inputs[1].classes = 3;
  EXPECT_THAT(refusal(train_program(), std::nullopt),
              HasSubstr("labels.npy: label 3 of example 41 is outside of the 3 classes, 0 to 2"));
  labels[41] = -1;
  save(images, labels);
  EXPECT_THAT(refusal(train_program(), std::nullopt), HasSubstr("label -1 of example 41"));
  config_.inputs[1].classes = 0;
  EXPECT_THAT(refusal(train_program(), std::nullopt), HasSubstr("label -1 of example 41"));
  std::vector<uint64_t> large(100, ~uint64_t{0});
  write_npy(path("labels.npy"), HostView(DType::kU64, {100}, std::as_bytes(std::span(large))));
  EXPECT_THAT(refusal(train_program(), std::nullopt),
              HasSubstr("label 18446744073709551615 of example 0 is too large"));
}

TEST_F(TrainerTest, StepsOfAllEpochsAreCountedWithoutWrappingAround) {
  config_.epochs = std::numeric_limits<int64_t>::max();
  const Trainer trainer(board_, config_, train_program(), std::nullopt);
  EXPECT_THROW(trainer.planned_steps(3), Error);
  config_.epochs = kMaxEpochs;
  EXPECT_EQ(trainer.planned_steps(3), 3);
  EXPECT_EQ(trainer.planned_steps(0), kMaxEpochs * 4);
}

}  // namespace
}  // namespace tpu::driver
