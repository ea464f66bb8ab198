// Infeed and outfeed of launches: which copies go to the rings, when, and what is told of them.
#include "src/feeds/feeds.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "src/residency/program.hpp"
#include "tests/unit/driver/fake_cores.hpp"

namespace tpu::driver {
namespace {

class FeedsTest : public testing::Test, protected test::FakeBoard {
 protected:
  static std::unique_ptr<exe::TensorT> vector_of(uint32_t slot) {
    auto tensor = std::make_unique<exe::TensorT>();
    tensor->elem = static_cast<exe::Elem>(DType::kF32);
    tensor->global_dims = tensor->local_dims = {4};
    tensor->offsets = {0};
    tensor->replicated = true;
    tensor->slot = slot;
    return tensor;
  }
  // A launch of `steps` on core 0, on the rings: argument 0 and result 0 are fed.
  std::shared_ptr<Operation> launch(uint32_t steps) {
    const auto exe = std::make_shared<exe::ExecutableT>();
    exe->name = "step";
    exe->partitions = 1;
    for (const auto kind : {exe::SlotKind::argument, exe::SlotKind::result}) {
      exe->slots.push_back(std::make_unique<exe::SlotT>());
      exe->slots.back()->kind = kind;
      exe->slots.back()->bytes = 16;
    }
    exe->args.push_back(vector_of(0));
    exe->results.push_back(vector_of(1));
    const auto op = operations.begin("launch of step");
    op->program = std::make_shared<LoadedProgram>(exe, std::vector<int>{0});
    op->steps = steps;
    RunOptions options;
    options.steps = steps;
    options.infeed = options.outfeed = {0};
    op->feed = feeds_.make(op, options);
    auto command = std::make_shared<Command>();
    command->opcode = TPU_OP_LAUNCH;
    op->commands.push_back(command);
    operations.submit_gang(op);
    feeds_.queue(*op);
    return op;
  }
  std::shared_ptr<EventState> give(StepFeedState& feed) {
    const std::vector<HostView> batch{{DType::kF32, {4}, std::as_bytes(std::span(values_))}};
    EXPECT_EQ(Feeds::check_batch(feed, batch), 16u);
    return feeds_.give(feed, batch);
  }
  size_t open() { return cores.devices[0].ring.open(); }
  // Completes the oldest copy; launches stay.
  void end_copy() {
    CommandRing& ring = cores.devices[0].ring;
    const Command* copy =
        ring.first([](const Command& each) { return each.opcode == TPU_OP_COPY; });
    ASSERT_NE(copy, nullptr);
    tpu_completion_t record{};
    record.seq = copy->seq;
    operations.report(ring.accept(record), TPU_STATUS_OK);
  }

  const std::vector<float> values_{1, 2, 3, 4};
  Feeds feeds_{cores.devices, cores.registers, operations, memory, handles, health, outbox, news};
};

TEST_F(FeedsTest, SlotsHaveMemoryForTwoSteps) {
  const auto op = launch(6);
  for (const auto* fed : {&op->feed->infeed, &op->feed->outfeed}) {
    ASSERT_EQ(fed->size(), 1u);
    EXPECT_EQ(fed->at(0).memory.at(0)->bytes(), 2 * fed->at(0).stride);
  }
}

TEST_F(FeedsTest, ABatchTakesItsResultsAlongAndFourStepsAreOnTheRings) {
  const auto op = launch(6);
  StepFeedState& feed = *op->feed;
  EXPECT_EQ(feeds_.starving(), op);
  std::vector<std::shared_ptr<EventState>> uploaded;
  for (int step = 0; step < 6; ++step) {
    uploaded.push_back(give(feed));
  }
  EXPECT_EQ(feeds_.starving(), nullptr);
  EXPECT_EQ(open(), 1u + 4 * 2) << "the launch, and a copy up and down of four steps";
  const auto results = feeds_.ready(feed, 0);
  end_copy();
  EXPECT_FALSE(uploaded[0]->open());
  EXPECT_TRUE(results->open());
  end_copy();
  EXPECT_FALSE(results->open());
  EXPECT_EQ(Feeds::take(feed, 0).at(0).bytes.size(), 16u);
  EXPECT_THROW(Feeds::take(feed, 0), Error) << "once";
  feeds_.send();
  EXPECT_EQ(open(), 1u + 4 * 2) << "the fifth step has followed";
}

TEST_F(FeedsTest, ALaterLaunchOnTheSameCoreWaitsWithItsCopies) {
  const auto first = launch(2);
  const auto second = launch(2);
  give(*second->feed);
  EXPECT_EQ(open(), 2u);
  give(*first->feed);
  EXPECT_EQ(open(), 2u + 2);
  give(*first->feed);
  EXPECT_EQ(open(), 2u + 6) << "all of the first, then the second";
}

TEST_F(FeedsTest, AFailedLaunchFailsTheStepsThatWereNotSent) {
  const auto op = launch(3);
  const auto feed = op->feed;
  const auto sent = give(*feed);
  const auto later = feeds_.ready(*feed, 2);
  EXPECT_FALSE(feeds_.empty());
  const auto error = std::make_shared<Error>(ErrorCode::kDeviceFault, "the launch failed");
  feeds_.end(*feed, error);
  EXPECT_TRUE(feeds_.empty());
  EXPECT_TRUE(later->failed());
  EXPECT_TRUE(sent->open()) << "its copy is on the ring";
  EXPECT_TRUE(feeds_.ready(*feed, 1)->failed());
}

TEST_F(FeedsTest, ALaunchThatIsSentAgainSendsItsCopiesAgain) {
  const auto op = launch(2);
  const auto uploaded = give(*op->feed);
  EXPECT_EQ(op->feed->sent, 1u);
  feeds_.rewind(*op->feed);
  EXPECT_EQ(op->feed->sent, 0u);
  EXPECT_TRUE(uploaded->open()) << "it is that of the next attempt";
  feeds_.send();
  EXPECT_EQ(op->feed->sent, 1u);
}

TEST_F(FeedsTest, WhatIsFedMustBeOneBatchForEachStep) {
  const auto op = launch(1);
  StepFeedState& feed = *op->feed;
  EXPECT_THROW(Feeds::check_batch(feed, {}), Error);
  EXPECT_THROW(Feeds::check_step(feed, 1), Error);
  EXPECT_NO_THROW(Feeds::check_step(feed, 0));
  give(feed);
  EXPECT_THROW(give(feed), Error) << "there is one step";
  feed.ended = true;
  EXPECT_THROW(give(feed), Error);
}

TEST_F(FeedsTest, ALaunchThatRunsDryIsTakenOffWithTheReason) {
  const auto op = launch(4);
  give(*op->feed);
  op->feed->ended = true;
  feeds_.end_dry(*op, 60);
  ASSERT_NE(op->verdict, nullptr);
  EXPECT_EQ(op->verdict->code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(op->verdict->message().find("needs 4, got 1 and StepFeed::end() was called"),
            std::string::npos)
      << op->verdict->message();
}

}  // namespace
}  // namespace tpu::driver
