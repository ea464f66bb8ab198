// Operations from their begin to their one end, and the order in which those that wait at the host
// are sent. The board around them is a fake.
#include "src/operations/operations.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/operations/buffer_state.hpp"
#include "src/operations/send_order.hpp"
#include "src/residency/program.hpp"
#include "tests/unit/driver/fake_cores.hpp"

namespace tpu::driver {
namespace {

class OperationsTest : public testing::Test {
 protected:
  static std::shared_ptr<Command> fill(int device = 0) {
    auto command = std::make_shared<Command>();
    command->device = device;
    command->opcode = TPU_OP_FILL;
    command->track = TPU_TRACK_UP;
    return command;
  }
  std::shared_ptr<Operation> gang() {
    auto op = operations_.begin("launch");
    op->program = std::make_shared<LoadedProgram>(std::make_shared<exe::ExecutableT>(),
                                                  std::vector<int>{0, 1});
    for (const int device : {0, 1}) {
      auto command = fill(device);
      command->opcode = TPU_OP_LAUNCH;
      command->track = TPU_TRACK_LAUNCH;
      op->commands.push_back(command);
    }
    return op;
  }
  void report(int device, uint16_t status = TPU_STATUS_OK) {
    operations_.report(cores_.take_oldest(device), status);
  }
  static std::shared_ptr<Error> error(const std::string& text) {
    return std::make_shared<Error>(ErrorCode::kInternal, text);
  }

  test::FakeCores cores_;
  Health health_;
  Outbox outbox_;
  HostNews news_;
  std::vector<std::string> launches_over_;
  std::function<void()> pump_ = [] { throw std::logic_error("nothing should wait here"); };
  Operations operations_{
      cores_.devices,
      cores_.registers,
      health_,
      outbox_,
      news_,
      {.pump = [this] { pump_(); },
       .make_event = [] { return std::make_shared<EventState>(); },
       .launch_over =
           [this](Operation& op, const ErrorPtr& why) {
             launches_over_.push_back(op.what + (why ? ": " + why->message() : ": ok"));
           }}};
  bool answers_ = false;
  SendOrder order_{operations_, health_, [this] { return answers_; }};
};

TEST_F(OperationsTest, AnOperationEndsWithTheLastCommandAfterItIsSealed) {
  const auto op = operations_.begin("copy");
  bool called = false;
  const auto first = fill();
  first->on_ok = [&] { called = true; };
  first->keep = {std::make_shared<int>(1)};
  operations_.add(op, first);
  operations_.add(op, fill());
  report(0);
  EXPECT_TRUE(called);
  EXPECT_TRUE(first->keep.empty()) << "a piece gives back what it holds before the others are over";
  report(0);
  EXPECT_FALSE(op->finished) << "more may be added";
  operations_.seal(op);
  EXPECT_TRUE(op->finished);
  EXPECT_FALSE(op->event->open());
  EXPECT_EQ(op->event->error, nullptr);
  EXPECT_FALSE(operations_.busy());
}

TEST_F(OperationsTest, AddWaitsForRoomAndOnlyForThat) {
  const auto op = operations_.begin("many");
  for (int i = 0; i < 224; ++i) {
    operations_.add(op, fill());
  }
  int pumps = 0;
  pump_ = [&] {
    ++pumps;
    report(0);
  };
  operations_.add(op, fill());
  EXPECT_EQ(pumps, 1);
}

TEST_F(OperationsTest, TheFirstErrorOfAPieceIsThatOfTheOperationAndMoreIsNotSent) {
  const auto op = operations_.begin("copy");
  operations_.add(op, fill());
  operations_.add(op, fill());
  report(0, TPU_STATUS_BUSY);
  ASSERT_NE(op->error, nullptr);
  operations_.add(op, fill());
  report(0, TPU_STATUS_HBM_RANGE);
  operations_.seal(op);
  EXPECT_TRUE(op->finished);
  EXPECT_EQ(op->event->error->code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(cores_.oldest(0), nullptr) << "the third one was not sent";
}

TEST_F(OperationsTest, WhatDidNotRunIsKeptToBeSentAgain) {
  const auto op = operations_.begin("copy");
  operations_.add(op, fill());
  operations_.seal(op);
  report(0, TPU_STATUS_FLUSHED);
  EXPECT_FALSE(op->finished);
  EXPECT_TRUE(operations_.needs_recovery());
  auto again = operations_.take_retries();
  ASSERT_EQ(again.size(), 1u);
  operations_.append(again[0]);
  report(0, TPU_STATUS_BAD_CRC);
  again = operations_.take_retries();
  ASSERT_EQ(again.size(), 1u) << "damage on the way is forgiven once";
  operations_.append(again[0]);
  report(0, TPU_STATUS_BAD_CRC);
  EXPECT_FALSE(operations_.needs_recovery());
  EXPECT_TRUE(op->event->failed());
}

TEST_F(OperationsTest, ACommandThatIsLostTwiceIsSentAgainAndThenFailsWithTheTrap) {
  cores_.devices[1].trap = error("the control hart died");
  const auto op = operations_.begin("copy");
  operations_.add(op, fill(1));
  operations_.seal(op);
  for (int loss = 0; loss < 2; ++loss) {
    report(1, kStatusLost);
    for (const auto& command : operations_.take_retries()) {
      operations_.append(command);
    }
  }
  report(1, kStatusLost);
  ASSERT_TRUE(op->event->failed());
  EXPECT_EQ(op->event->error->message(), "the control hart died");
}

TEST_F(OperationsTest, AGangEndsWhenAllCoresHaveReported) {
  const auto op = gang();
  operations_.submit_gang(op);
  EXPECT_TRUE(op->on_board);
  report(1);
  EXPECT_FALSE(op->finished);
  report(0);
  EXPECT_TRUE(op->finished);
  EXPECT_EQ(launches_over_, (std::vector<std::string>{"launch: ok"}));

  const auto failed = gang();
  operations_.submit_gang(failed);
  report(0);
  report(1, TPU_STATUS_FAULT);
  EXPECT_FALSE(failed->finished) << "recovery judges it";
  EXPECT_EQ(operations_.take_failed_launches(), std::vector{failed});
}

TEST_F(OperationsTest, AnErrorBeforeAnyStepGivesDonatedBuffersBack) {
  for (const bool ran : {false, true}) {
    const auto buffer =
        std::make_shared<BufferState>(Allocation::make(cores_.devices[0].memory, 512, "donated"));
    buffer->donate();
    const auto op = gang();
    op->donated = {buffer};
    op->on_board = ran;
    operations_.finish(*op, error("lost"));
    EXPECT_EQ(buffer->live(), !ran);
    EXPECT_TRUE(op->event->failed());
    EXPECT_TRUE(op->commands.empty());
  }
}

TEST_F(OperationsTest, ASubmissionThatThrowsFailsButWhatIsOutIsWaitedFor) {
  std::shared_ptr<Operation> op;
  bool called = false;
  try {
    const Operations::Submission upload(operations_, "upload");
    op = upload.op();
    const auto command = fill();
    command->on_ok = [&] { called = true; };
    operations_.add(op, command);
    EXPECT_TRUE(operations_.being_sent());
    throw std::runtime_error("the source cannot be read");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(operations_.being_sent());
  EXPECT_FALSE(op->finished);
  report(0);
  EXPECT_TRUE(op->event->failed());
  EXPECT_FALSE(called) << "what comes in is dropped";
}

TEST_F(OperationsTest, FailAllEndsEverythingOnTheRings) {
  const auto copy = operations_.begin("copy");
  operations_.add(copy, fill());
  const auto launch = gang();
  operations_.submit_gang(launch);
  operations_.fail_all(error("the board broke"));
  EXPECT_TRUE(copy->event->failed());
  EXPECT_TRUE(launch->event->failed());
  EXPECT_FALSE(operations_.busy());
}

class SendOrderTest : public OperationsTest {
 protected:
  std::shared_ptr<Operation> submit(const std::string& what,
                                    const std::shared_ptr<EventState>& after,
                                    std::vector<std::shared_ptr<Allocation>> writes = {}) {
    auto op = operations_.begin(what);
    if (after) {
      op->inputs = op->after = {after};
    }
    op->writes = std::move(writes);
    order_.send_in_order(op, [this, what] { sent_.push_back(what); });
    return op;
  }
  std::vector<std::string> sent_;
};

TEST_F(SendOrderTest, LaunchesThatAreHeldWaitAndCopiesDoNot) {
  bool held = true;
  order_.hold_launches([&](const Operation&) { return held; });
  const auto launch = gang();
  order_.send_in_order(launch, [this] { sent_.push_back("launch"); });
  submit("copy", nullptr);
  order_.send_waiting();
  EXPECT_EQ(sent_, std::vector<std::string>{"copy"});
  held = false;
  order_.send_waiting();
  EXPECT_EQ(sent_, (std::vector<std::string>{"copy", "launch"}));
}

TEST_F(SendOrderTest, WhatWaitsForAnEventIsSentWhenItIsSet) {
  const auto event = std::make_shared<EventState>();
  const auto late = submit("late", event);
  submit("free", nullptr);
  EXPECT_EQ(sent_, std::vector<std::string>{"free"});
  EXPECT_TRUE(late->event->off_ring);
  EXPECT_TRUE(order_.any());
  EXPECT_TRUE(order_.any(operations_.last()));
  EXPECT_FALSE(order_.any(late->number - 1));
  event->set(nullptr);
  answers_ = true;
  order_.send_waiting();
  EXPECT_EQ(sent_.size(), 1u) << "who answers a host call sends nothing";
  answers_ = false;
  order_.send_waiting();
  EXPECT_EQ(sent_, (std::vector<std::string>{"free", "late"}));
  EXPECT_FALSE(late->event->off_ring);
  EXPECT_FALSE(order_.any());
}

TEST_F(SendOrderTest, WhatWritesMemoryOfAnEarlierOneWaitsBehindIt) {
  const auto memory = Allocation::make(cores_.devices[0].memory, 512, "array");
  const auto event = std::make_shared<EventState>();
  submit("first", event, {memory});
  submit("second", nullptr, {memory});
  submit("other", nullptr);
  EXPECT_EQ(sent_, std::vector<std::string>{"other"});
  event->set(nullptr);
  order_.send_waiting();
  EXPECT_EQ(sent_, (std::vector<std::string>{"other", "first", "second"}));
}

TEST_F(SendOrderTest, WhatWaitsFailsWithItsInputAndWithTheBoard) {
  const auto event = std::make_shared<EventState>();
  const auto with_input = submit("first", event);
  event->set(error("the input is lost"));
  order_.send_waiting();
  EXPECT_EQ(with_input->event->error->message(), "the input is lost");
  const auto with_board = submit("second", std::make_shared<EventState>());
  order_.fail_all(error("the board broke"));
  EXPECT_EQ(with_board->event->error->message(), "the board broke");
  EXPECT_TRUE(sent_.empty());
}

}  // namespace
}  // namespace tpu::driver
