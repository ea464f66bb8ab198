// Training of programs that are no image classifiers, on the null board: inputs and results by
// lists, metrics, learning rates, losses that are not finite, early stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "format/npy.hpp"
#include "input/rewrite.hpp"
#include "loop/trainer.hpp"
#include "report/rate_finder.hpp"
#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"
#include "transport/null/null_transport.hpp"

namespace tpu::driver {
namespace {

using test::ProgramBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using training::InitKind;
using training::NotFinite;
using training::Progress;
using training::Schedule;
using training::TrainConfig;
using training::Trainer;

constexpr int64_t kBatch = 8;
constexpr int64_t kLength = 3;
constexpr uint32_t kCores = 4;

template <typename Number>
std::vector<Number> numbers(const NullLaunchPart& part, size_t slot) {
  std::vector<Number> values(part.slots[slot].size / sizeof(Number));
  part.hbm->read(part.slots[slot].base, std::as_writable_bytes(std::span(values)));
  return values;
}

template <typename Number>
void put(const NullLaunchPart& part, size_t slot, const std::vector<Number>& values) {
  part.hbm->write(part.slots[slot].base, std::as_bytes(std::span(values)));
}

// A model with one number as state: each step adds rate * (sum of tokens * weights). It takes
// tokens, state, weights and rate, and gives the state as loss, "first" (the first token of each
// example) and the new state, in this order.
class AnyProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("tpu_any_") + info->name() + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    save_tokens();
    const std::vector<float> weights(20 * kLength, 0.5f);
    write_npy(path("weights.npy"),
              HostView(DType::kF32, {20, kLength}, std::as_bytes(std::span(weights))));
    config_.inputs.resize(2);
    config_.inputs[0].name = "tokens";
    config_.inputs[0].file = path("tokens.npy");
    config_.inputs[0].classes = 256;
    config_.inputs[1].name = "weights";
    config_.inputs[1].file = path("weights.npy");
    config_.train_signature = {.arguments = {"tokens", "state", "weights", "learning_rate"},
                               .results = {"loss", "first", "state"}};
    config_.eval_signature = {.arguments = {"state", "tokens"}, .results = {"loss", "first"}};
    config_.learning_rate = {.value = 0.25};
    config_.init = {{InitKind::kConstant, {}, 2.0}};
    config_.split_seed = 7;
    config_.eval_count = 4;
    config_.batch = kBatch;
    config_.epochs = 3;
    board_ = test::open_null(null_);
    null_->executor = [this](NullLaunch& launch) { return execute(launch); };
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void save_tokens(int64_t odd = 0) {
    tokens_.clear();
    for (int64_t i = 0; i < 20 * kLength; ++i) {
      tokens_.push_back(i % 100);
    }
    tokens_[17] += odd;
    write_npy(path("tokens.npy"),
              HostView(DType::kI64, {20, kLength}, std::as_bytes(std::span(tokens_))));
  }

  Executable train_program(DType tokens = DType::kI32) {
    ProgramBuilder train(kCores);
    train.argument(tokens, {kBatch, kLength}, true);
    train.argument(DType::kF32, {});
    train.argument(DType::kF32, {kBatch, kLength}, true);
    train.argument(DType::kF32, {});
    train.result(DType::kF32, {});
    train.result(DType::kF32, {kBatch}, true);
    train.result(DType::kF32, {}, false, 1);
    return board_.load(train.bytes());
  }

  Executable eval_program() {
    ProgramBuilder eval(kCores);
    eval.argument(DType::kF32, {});
    eval.argument(DType::kI32, {kBatch, kLength}, true);
    eval.result(DType::kF32, {kBatch}, true);
    eval.result(DType::kF32, {kBatch}, true);
    return board_.load(eval.bytes());
  }

  std::optional<tpu_fault_record_t> execute(NullLaunch& launch) {
    const bool eval = launch.parts[0].slots.size() == 4;
    float sum = 0;
    for (NullLaunchPart& part : launch.parts) {
      const auto tokens = numbers<int32_t>(part, eval ? 1 : 0);
      std::vector<float> first;
      for (size_t i = 0; i < tokens.size(); i += static_cast<size_t>(kLength)) {
        first.push_back(static_cast<float>(tokens[i]));
      }
      if (eval) {
        put(part, 2, std::vector<float>(first.size(), eval_loss_));
        put(part, 3, first);
        continue;
      }
      put(part, 5, first);
      const auto weights = numbers<float>(part, 2);
      for (size_t i = 0; i < tokens.size(); ++i) {
        sum += static_cast<float>(tokens[i]) * weights[i];
      }
    }
    if (eval) {
      eval_loss_ = eval_loss_ < 0.3f ? eval_loss_ : eval_loss_ - 0.25f;
      return std::nullopt;
    }
    const float rate = numbers<float>(launch.parts[0], 3)[0];
    rates_.push_back(rate);
    const float state = numbers<float>(launch.parts[0], 1)[0] + rate * sum;
    const float loss = static_cast<int>(rates_.size()) == nan_at_ ? NAN : state;
    for (NullLaunchPart& part : launch.parts) {
      put(part, 4, std::vector<float>{loss});
      put(part, 1, std::vector<float>{state});
    }
    return std::nullopt;
  }

  // The arrays as three record files, which are the input from then on.
  void write_records() {
    const std::vector<std::string> names = {"tokens", "weights"};
    std::vector<input::Column> columns;
    for (const training::InputConfig& input : config_.inputs) {
      columns.push_back(input::open_column(input.file, "", {.name = input.name}));
    }
    input::write_records(names, columns, {.prefix = path("train"), .shards = 3}, {});
    config_.records = {path("train-*.tfrecord")};
  }

  std::string refusal(const training::Checkpoint* from = nullptr) {
    try {
      const Trainer trainer(board_, config_, train_program(), eval_program(), true, from);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.message();
    }
    return "accepted";
  }

  std::filesystem::path folder_;
  TrainConfig config_;
  std::vector<int64_t> tokens_;
  NullTransport* null_ = nullptr;
  Board board_;
  std::vector<float> rates_;
  float eval_loss_ = 1.0f;
  int nan_at_ = 0;
};

TEST_F(AnyProgram, TrainsWithTokensWeightsAndARate) {
  config_.learning_rate = {.schedule = Schedule::kLinear, .value = 0.5, .end = 0.0};
  Trainer trainer(board_, config_, train_program(), eval_program());
  std::vector<Progress> steps;
  EXPECT_TRUE(trainer.train({}, {.step = [&](const Progress& at) { steps.push_back(at); },
                                 .epoch_done = {},
                                 .stop_wanted = {},
                                 .save = {}}));
  ASSERT_EQ(steps.size(), 6u);  // 16 examples, 3 epochs
  EXPECT_THAT(rates_, ElementsAre(0.5f, 0.4f, 0.3f, 0.2f, 0.1f, 0.0f));
  float state = 2.0f;
  input::Order epochs(trainer.data().train_order(), 20);
  for (size_t epoch = 0; epoch < 3; ++epoch) {
    epochs.begin(static_cast<uint32_t>(epoch));
    std::vector<uint32_t> order(16);
    std::generate(order.begin(), order.end(), [&] { return epochs.next(); });
    for (size_t step = 0; step < 2; ++step) {
      const Progress& seen = steps[2 * epoch + step];
      double first = 0;
      float sum = 0;
      for (size_t row = 0; row < static_cast<size_t>(kBatch); ++row) {
        const size_t example = order[step * static_cast<size_t>(kBatch) + row];
        first += static_cast<double>(tokens_[3 * example]) / 8.0;
        for (size_t i = 0; i < 3; ++i) {
          sum += static_cast<float>(tokens_[3 * example + i]) * 0.5f;
        }
      }
      state += rates_[2 * epoch + step] * sum;
      EXPECT_EQ(seen.loss, state);
      ASSERT_EQ(seen.metrics.size(), 1u);
      EXPECT_EQ(seen.metrics[0].name, "first");
      EXPECT_DOUBLE_EQ(seen.metrics[0].value, first);
      EXPECT_EQ(static_cast<float>(seen.learning_rate.value()), rates_[2 * epoch + step]);
    }
  }
  float kept = 0;
  std::memcpy(&kept, trainer.state()[0].bytes.data(), sizeof(kept));
  EXPECT_EQ(kept, state);
  double first = 0;
  for (const uint32_t example : trainer.data().eval_order()) {
    first += static_cast<double>(tokens_[3 * example]) / 4.0;
  }
  const training::EvalResult result = trainer.epochs().back().eval.value();
  EXPECT_DOUBLE_EQ(result.find("first").value(), first);  // padding does not count
  EXPECT_DOUBLE_EQ(result.find("loss").value(), 1.0);
}

TEST_F(AnyProgram, EachStepOfALaunchHasItsRateAndMetrics) {
  config_.learning_rate = {.schedule = Schedule::kLinear, .value = 0.5, .end = 0.0};
  std::vector<std::vector<Progress>> runs;
  for (const int64_t steps : {1, 2}) {
    rates_.clear();
    config_.steps_per_execution = steps;
    Trainer trainer(board_, config_, train_program(), eval_program());
    auto& seen = runs.emplace_back();
    EXPECT_TRUE(trainer.train({}, {.step = [&](const Progress& at) { seen.push_back(at); },
                                   .epoch_done = {},
                                   .stop_wanted = {},
                                   .save = {}}));
    EXPECT_THAT(rates_, ElementsAre(0.5f, 0.4f, 0.3f, 0.2f, 0.1f, 0.0f));
  }
  ASSERT_EQ(runs[0].size(), runs[1].size());
  for (size_t i = 0; i < runs[0].size(); ++i) {
    EXPECT_EQ(runs[0][i].loss, runs[1][i].loss);
    EXPECT_EQ(runs[0][i].metrics.at(0).value, runs[1][i].metrics.at(0).value);
    EXPECT_EQ(runs[0][i].learning_rate, runs[1][i].learning_rate);
  }
}

TEST_F(AnyProgram, AStateLeafHoldsTheRate) {
  ProgramBuilder train(kCores);
  train.argument(DType::kI32, {kBatch, kLength}, true);
  train.argument(DType::kF32, {});
  train.argument(DType::kF32, {kBatch, kLength}, true);
  train.argument(DType::kF32, {});
  train.result(DType::kF32, {});
  train.result(DType::kF32, {kBatch}, true);
  train.result(DType::kF32, {}, false, 1);
  train.result(DType::kF32, {}, false, 3);
  config_.train_signature = {.arguments = {"tokens", "state", "weights", "state"},
                             .results = {"loss", "first", "state", "state"}};
  config_.learning_rate = {.schedule = Schedule::kLinear, .value = 0.5, .end = 0.0, .leaf = "1"};
  config_.init.push_back({InitKind::kConstant, {}, 9.0});
  Trainer trainer(board_, config_, board_.load(train.bytes()), std::nullopt);
  EXPECT_TRUE(trainer.train({}, {}));
  EXPECT_THAT(rates_, ElementsAre(0.5f, 0.4f, 0.3f, 0.2f, 0.1f, 0.0f));
  config_.steps_per_execution = 2;
  EXPECT_THROW(Trainer(board_, config_, board_.load(train.bytes()), std::nullopt), Error);
  config_.steps_per_execution = 1;
  config_.learning_rate->leaf = "7";
  EXPECT_THROW(Trainer(board_, config_, board_.load(train.bytes()), std::nullopt), Error);
}

TEST_F(AnyProgram, WrongListsAreNamed) {
  const TrainConfig good = config_;
  EXPECT_EQ(refusal(), "accepted");
  const auto arguments = [&](std::vector<std::string> list, const std::string& text) {
    config_ = good;
    config_.train_signature.arguments = std::move(list);
    EXPECT_THAT(refusal(), HasSubstr(text));
  };
  arguments({"tokens", "state"}, "program.arguments names 2, halt_program has 4");
  arguments({"tokens", "state", "tokens", "learning_rate"}, "\"tokens\" is listed twice");
  arguments(
      {"tokens", "state", "wieghts", "learning_rate"},
      "\"wieghts\" is not an input; known: state, state:N, tokens, weights, mask, learning_rate");
  arguments({"tokens", "state:4", "weights", "learning_rate"},
            "\"state:4\": there are state leaves 0 to 0");
  arguments({"tokens", "state*0", "weights", "learning_rate"}, "a count in 1..65536");
  arguments({"tokens", "mask", "weights", "learning_rate"}, "takes no mask");
  arguments({"state", "learning_rate", "weights", "tokens"}, "but state leaf 0 is i32[8,3]");
  arguments({"tokens", "state", "weights", "state"}, "state leaf 1 is not a result");
  arguments({"tokens", "state", "-", "learning_rate"}, "\"-\" is not an input");
  config_ = good;
  config_.train_signature = {};
  EXPECT_THAT(refusal(), HasSubstr("a train program takes state leaves, tokens and weights and "
                                   "returns the new leaves and the loss; this one has 4"));
  const auto results = [&](std::vector<std::string> list, const std::string& text) {
    config_ = good;
    config_.train_signature.results = std::move(list);
    EXPECT_THAT(refusal(), HasSubstr(text));
  };
  results({"first", "-", "state"}, "no result is the loss");
  results({"-", "loss", "state"}, "result 1 must be the loss, a scalar f32");
  results({"loss", "first", "last"}, "state leaf 0 is not a result");
  const auto evals = [&](std::vector<std::string> list, const std::string& text) {
    config_ = good;
    config_.eval_signature.results = std::move(list);
    EXPECT_THAT(refusal(), HasSubstr(text));
  };
  evals({"loss", "state"}, "is a metric, not state");
  evals({"first", "first"}, "program.eval_results: \"first\" is listed twice");
  evals({"correct", "first"}, "result 0 must be the number of correct predictions");
  config_ = good;
  config_.learning_rate.reset();
  EXPECT_THAT(refusal(), HasSubstr("argument 3 is a learning rate"));
  config_ = good;
  config_.batch = 4;
  EXPECT_THAT(refusal(), HasSubstr("argument 0 must be the tokens, [4,...], not i32[8,3]"));
}

TEST_F(AnyProgram, NumbersOutOfRangeAreNamed) {
  save_tokens(300);  // value 2 of example 5
  EXPECT_THAT(refusal(), HasSubstr("tokens.npy: tokens 317 of example 5, value 2, is outside of "
                                   "the 256 classes, 0 to 255"));
  config_.inputs[0].classes = 0;
  EXPECT_EQ(refusal(), "accepted");
  save_tokens(int64_t{1} << 40);
  EXPECT_THAT(refusal(), HasSubstr("does not fit into the program's i32"));
  config_.inputs[1].file = path("tokens.npy");
  EXPECT_THAT(refusal(), HasSubstr("tokens.npy: i64 cannot be converted to the program's f32"));
  config_.inputs[1].file = path("few.npy");
  const std::vector<float> few(3);
  write_npy(path("few.npy"), HostView(DType::kF32, {1, 3}, std::as_bytes(std::span(few))));
  EXPECT_THAT(refusal(), HasSubstr("few.npy: 1 examples of weights, but 20 of tokens"));
}

// Records hold integers as i64 and floats as f32: the bits are those of the arrays.
TEST_F(AnyProgram, TrainsFromRecordFilesAsFromArrays) {
  Trainer arrays(board_, config_, train_program(), eval_program());
  EXPECT_TRUE(arrays.train({}, {}));
  write_records();
  Trainer records(board_, config_, train_program(), eval_program());
  EXPECT_TRUE(records.train({}, {}));
  EXPECT_EQ(records.losses(), arrays.losses());
  EXPECT_EQ(training::state_digest(records.state()), training::state_digest(arrays.state()));

  config_.inputs[1].name = "wieghts";
  config_.train_signature.arguments[2] = "wieghts";
  EXPECT_THAT(refusal(), HasSubstr("wieghts"));
  config_.records = {path("test-*.tfrecord")};
  EXPECT_THAT(refusal(), HasSubstr("test-*.tfrecord"));
  const std::string damaged = path("train-00001-of-00003.tfrecord");
  std::vector<std::byte> bytes = read_file(damaged);
  bytes[bytes.size() / 2] ^= std::byte{1};
  write_file(damaged, bytes);
  config_.inputs[1].name = "weights";
  config_.train_signature.arguments[2] = "weights";
  config_.records = {path("train-*.tfrecord")};
  // A held-out one: it is read when the evaluation wants it, and the steps are not lost.
  Trainer broken(board_, config_, train_program(), eval_program());
  try {
    broken.train({}, {});
    FAIL() << "trained on";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("train-00001-of-00003.tfrecord, record "));
    EXPECT_THAT(error.message(), HasSubstr("corrupt: the checksum of its data is wrong"));
  }
  EXPECT_EQ(broken.rescue().value().step, 6);
}

// Two steps an epoch, by a buffer of 5: stopped behind each step, the rest has the bits
// of a run without a stop. The input is read ahead by another number of threads.
TEST_F(AnyProgram, ARunFromRecordsGoesOnInTheMiddleOfAnEpoch) {
  write_records();
  config_.shuffle = 5;
  config_.epochs = 2;
  Trainer whole(board_, config_, train_program(), eval_program());
  EXPECT_TRUE(whole.train({}, {}));
  ASSERT_EQ(whole.losses().size(), 4u);
  config_.shuffle = 4;
  Trainer other(board_, config_, train_program(), eval_program());
  EXPECT_TRUE(other.train({}, {}));
  EXPECT_NE(other.losses(), whole.losses());
  config_.shuffle = 5;
  for (int64_t stop = 1; stop < 4; ++stop) {
    config_.input_threads = static_cast<unsigned>(stop);
    Trainer first(board_, config_, train_program(), eval_program());
    first.train({.max_steps = stop}, {});
    const std::string file = path("checkpoint.safetensors");
    training::write_checkpoint(file, first.checkpoint());
    const training::Checkpoint from = training::read_checkpoint(file);
    EXPECT_EQ(input::Position::parse(from.input).next, static_cast<uint64_t>(stop));
    Trainer second(board_, config_, train_program(), eval_program(), true, &from);
    EXPECT_TRUE(second.train({}, {}));
    EXPECT_EQ(second.losses(), whole.losses()) << stop;
    EXPECT_EQ(training::state_digest(second.state()), training::state_digest(whole.state()));

    config_.shuffle = 6;
    EXPECT_THAT(refusal(&from), HasSubstr("the input cannot continue where another one stopped"));
    config_.shuffle = 5;
    training::Checkpoint damaged = from;
    damaged.step += 1;
    damaged.losses.push_back(0);
    EXPECT_THAT(refusal(&damaged), HasSubstr("the checkpoint is damaged"));
  }
}

// A buffer of one example is the stored order; the held-out ones are left out.
TEST_F(AnyProgram, WithoutAShuffleExamplesComeAsTheyAreStored) {
  write_records();
  config_.shuffle = 0;
  Trainer trainer(board_, config_, train_program(), std::nullopt);
  std::vector<uint32_t> expected;
  const auto& held_out = trainer.data().eval_order();
  for (uint32_t i = 0; i < 20; ++i) {
    if (std::find(held_out.begin(), held_out.end(), i) == held_out.end()) {
      expected.push_back(i);
    }
  }
  const auto batches = trainer.data().training(kBatch, 1);
  std::vector<uint32_t> seen;
  for (input::Batch batch; batches->next(batch);) {
    for (size_t row = 0; row < static_cast<size_t>(kBatch); ++row) {
      int32_t first = 0;
      std::memcpy(&first, batch.arrays[0].bytes.data() + row * kLength * sizeof(first),
                  sizeof(first));
      seen.push_back(static_cast<uint32_t>(first) / kLength);
    }
  }
  EXPECT_EQ(seen, expected);
}

TEST_F(AnyProgram, ALossThatIsNotFiniteEndsTheRunAndKeepsNoState) {
  nan_at_ = 3;
  Trainer trainer(board_, config_, train_program(), std::nullopt);
  try {
    trainer.train({}, {});
    FAIL() << "trained on";
  } catch (const NotFinite& error) {
    EXPECT_EQ(error.step(), 3);
    EXPECT_THAT(error.message(), HasSubstr("step 3: the loss is nan"));
  }
  EXPECT_FALSE(trainer.rescue().has_value());
  rates_.clear();
  config_.stop_on_nan = false;
  Trainer on(board_, config_, train_program(), std::nullopt);
  EXPECT_TRUE(on.train({}, {}));
  EXPECT_TRUE(std::isnan(on.losses()[2]));
}

// The loss is the state, which grows with the rates: the search ends long before its last step.
TEST_F(AnyProgram, TheRateFinderRaisesTheRateUntilTheLossDiverges) {
  config_.epochs = 100;
  Trainer trainer(board_, config_, train_program(), std::nullopt);
  const training::RateSearch search{.low = 1e-6, .high = 1.0, .steps = 121};
  const auto points = training::find_rate(trainer, config_, search, {});
  ASSERT_GT(points.size(), 20u);
  EXPECT_LT(points.size(), 121u);
  EXPECT_DOUBLE_EQ(points[0].rate, 1e-6);
  EXPECT_NEAR(points[20].rate, 1e-5, 1e-15);
  EXPECT_EQ(training::best_rate(points), 0.0);
  EXPECT_EQ(rates_[10], static_cast<float>(points[10].rate));
  Trainer small(board_, config_, train_program(), std::nullopt);
  EXPECT_THROW(training::find_rate(small, config_, {.low = 1e-6, .high = 1.0, .steps = 999}, {}),
               Error);
  config_.learning_rate.reset();
  EXPECT_THROW(training::find_rate(small, config_, search, {}), Error);
}

// Losses of the evaluations: 1, 0.75, 0.5, 0.25, 0.25, 0.25 ...
TEST_F(AnyProgram, StopsWhenEvaluationsDoNotGetBetter) {
  config_.epochs = 20;
  config_.eval_every = 1;
  config_.early_stop = {.metric = "loss", .rises = false, .patience = 2, .min_change = 0.01};
  Trainer trainer(board_, config_, train_program(), eval_program());
  EXPECT_TRUE(trainer.train({}, {}));
  EXPECT_EQ(trainer.epochs().size(), 6u);
  EXPECT_EQ(trainer.stopped_early(), "loss did not improve on 0.25 in 2 evaluations");
  // A run that goes on from its end does not go on.
  const training::Checkpoint end = trainer.checkpoint();
  Trainer again(board_, config_, train_program(), eval_program(), true, &end);
  EXPECT_TRUE(again.train({}, {}));
  EXPECT_EQ(again.steps_run(), 0);
  config_.early_stop->metric = "perplexity";
  EXPECT_THAT(refusal(), HasSubstr("early_stop.metric = \"perplexity\" is not a result of "
                                   "the eval program: loss, first"));
}

}  // namespace
}  // namespace tpu::driver
