// What the driver believes of a device, on the null board: launch ids that wrap, launches that
// never end, completion rings whose records are not what the firmware wrote. Nothing hangs (polls
// are counted, not timed), and nothing wrong is handed out.
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <random>

#include "file/crc32c.hpp"
#include "src/board/board_impl.hpp"
#include "src/handles/access.hpp"
#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/spec/core_page_regs.hpp"
#include "tpu/spec/gsync_regs.h"
#include "tpu/tpu.hpp"
#include "transport/null/null_transport.hpp"

namespace tpu::driver {
namespace {

using test::counting;
using test::ProgramBuilder;
using Record = std::span<std::byte>;

// Null board that counts how often the driver looks at it.
class CountingNull : public NullTransport {
 public:
  using NullTransport::NullTransport;
  uint32_t read32(int chip, int bar, uint64_t offset) override {
    ++polls;
    return NullTransport::read32(chip, bar, offset);
  }
  RunOutcome run() override {
    ++polls;
    if (steps_of_core_0 > 0 && looks_with_steps == 0) {
      end_endless();
    }
    if (early_parks && !parked_early_) {
      parked_early_ = NullTransport::run();
      RunOutcome early;
      early.expired = true;
      early.msi.resize(parked_early_->msi.size());
      return early;
    }
    const auto late = std::exchange(parked_early_, std::nullopt);
    return late ? *late : NullTransport::run();
  }
  void write32(int chip, int bar, uint64_t offset, uint32_t value) override {
    namespace core_page = spec::core_page;
    calls_at_early_parks += parked_early_ ? 1 : 0;
    if (!deaf_to_aborts || offset % core_page::kStride != core_page::kAbort) {
      NullTransport::write32(chip, bar, offset, value);
    }
  }
  TransportStats stats() override {
    TransportStats stats = NullTransport::stats();
    steps_of_core_0 += looks_with_steps > 0 ? 1 : 0;
    looks_with_steps -= looks_with_steps > 0 ? 1 : 0;
    stats.places[0].steps += steps_of_core_0;
    return stats;
  }
  uint64_t polls = 0;
  int looks_with_steps = 0;  // so often core 0 has ended a step since the last look, then it ends
  uint64_t steps_of_core_0 = 0;
  bool deaf_to_aborts = false;
  bool early_parks = false;  // each run() is cut by the clock, behind its completions
  uint64_t calls_at_early_parks = 0;

 private:
  std::optional<RunOutcome> parked_early_;
};

class Trust : public ::testing::Test {
 protected:
  void open(std::optional<double> time_limit = {}) {
    OpenOptions options;
    options.time_limit = time_limit;
    board_ = test::open_null(null_, options);
  }

  Executable load(uint32_t partitions, int device = 0) {
    ProgramBuilder builder(partitions);
    builder.argument(DType::kI32, {256});
    builder.argument(DType::kI32, {16});
    builder.result(DType::kI32, {256}, false, 0);
    return board_.load(builder.bytes(), device);
  }

  // Upload, launch of two cores, read. `spoil`: what becomes of completion number `which`.
  std::shared_ptr<const Error> round_with(size_t which, const std::function<void(Record)>& spoil) {
    open();
    const Executable program = load(2);
    const Array other = program.put(1, counting(DType::kI32, {16}));
    board_.synchronize();
    const uint64_t polls = null_->polls;
    size_t count = 0;
    null_->spoil_completion = [&](Record record) {
      if (count++ == which) {
        spoil(record);
      }
    };
    std::shared_ptr<const Error> error;
    try {
      const HostArray sent = counting(DType::kI32, {256}, 5);
      const RunResult result = program.run({program.put(0, sent), other});
      EXPECT_EQ(result.outputs[0].to_host_checked("state").bytes, sent.bytes);
      board_.synchronize();
    } catch (const Error& caught) {
      error = std::make_shared<Error>(caught);
    }
    EXPECT_LT(null_->polls - polls, 100u);
    EXPECT_EQ(error == nullptr, count <= which) << which;
    return error;
  }

  void expect_corrupt(size_t which, const std::function<void(Record)>& spoil) {
    const auto error = round_with(which, spoil);
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code(), ErrorCode::kInternal) << error->what();
    EXPECT_NE(error->message().find("completion ring is corrupt"), std::string::npos)
        << error->what();
    EXPECT_GE(error->place().device, 0);
    EXPECT_THROW(board_.put(0, counting(DType::kU8, {100})), Error);
  }

  CountingNull* null_ = nullptr;
  Board board_;
};

TEST_F(Trust, EachFlippedBitOfACompletionIsNoticed) {
  for (size_t bit = 0; bit < sizeof(tpu_completion_t) * 8; ++bit) {
    // Completions of the round: two uploads, two launches, two reads.
    expect_corrupt(
        bit % 6, [&](Record record) { record[bit / 8] ^= static_cast<std::byte>(1u << bit % 8); });
  }
}

TEST_F(Trust, RandomCompletionsAreNoticed) {
  std::mt19937_64 random(20);
  for (size_t i = 0; i < 50; ++i) {
    expect_corrupt(random() % 6, [&](Record record) {
      for (std::byte& byte : record) {
        byte = static_cast<std::byte>(random());
      }
    });
  }
}

TEST_F(Trust, CompletionThatIsNotWrittenIsNoticed) {
  for (size_t which = 0; which < 6; ++which) {
    expect_corrupt(which,
                   [](Record record) { std::fill(record.begin(), record.end(), std::byte{0}); });
  }
}

// Each step of a launch may have a record of its own; the launch ends with the last.
TEST_F(Trust, ALaunchMayTellItsSteps) {
  open();
  const Executable program = load(1);
  null_->tell_steps = true;
  RunOptions options;
  options.steps = 5;
  const HostArray sent = counting(DType::kI32, {256}, 5);
  const RunResult result =
      program.run({program.put(0, sent), program.put(1, counting(DType::kI32, {16}))}, options);
  EXPECT_EQ(result.outputs[0].to_host_checked("state").bytes, sent.bytes);
  board_.synchronize();
  EXPECT_EQ(null_->commands_done, 5u);  // the load, two uploads, the launch, a read
}

// The CRC is right, what it says cannot be.
TEST_F(Trust, ImpossibleCompletionsAreNoticed) {
  const auto with = [](const std::function<void(tpu_completion_t&)>& change) {
    return [change](Record record) {
      tpu_completion_t completion;
      std::memcpy(&completion, record.data(), sizeof(completion));
      change(completion);
      std::memcpy(record.data(), &completion, sizeof(completion));
      completion.crc = spec::crc32c(record.first(sizeof(completion) - sizeof(completion.crc)));
      std::memcpy(record.data(), &completion, sizeof(completion));
    };
  };
  for (size_t which = 0; which < 6; ++which) {
    expect_corrupt(which, with([](tpu_completion_t& c) { c.seq += 1; }));
    expect_corrupt(which, with([](tpu_completion_t& c) { c.seq -= 1; }));
    expect_corrupt(which, with([](tpu_completion_t& c) { c.seq += 0x80000000; }));
    expect_corrupt(which, with([](tpu_completion_t& c) { c.epoch += 1; }));
    expect_corrupt(which, with([](tpu_completion_t& c) { c.status = 23; }));
    expect_corrupt(which, with([](tpu_completion_t& c) { c.status = 19; }));
    expect_corrupt(which, with([](tpu_completion_t& c) { c.flags |= TPU_CPL_FLAG_MORE; }));
    expect_corrupt(which, with([](tpu_completion_t& c) { c.flags |= 8; }));
  }
}

// The limit is wall-clock time: how long it takes is not looked at, only that it ends.
TEST_F(Trust, EndlessLaunchEndsAtItsTimeLimit) {
  open(0.02);
  const Executable program = load(8);
  const HostArray sent = counting(DType::kI32, {256}, 5);
  const Array other = program.put(1, counting(DType::kI32, {16}));
  const Array doomed = program.put(0, sent);
  const Array waiting = program.put(0, sent);
  board_.synchronize();
  for (int i = 0; i < 2; ++i) {
    null_->endless_launches = 1;
    const Array state = i == 0 ? doomed : program.put(0, sent);
    const RunResult lost = program.run({state, other});
    const RunResult behind = program.run({i == 0 ? waiting : program.put(0, sent), other});
    const auto error = lost.done.wait_for_error();
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code(), ErrorCode::kTimeout) << error->what();
    EXPECT_GE(error->place().device, 0);
    for (const char* part : {"launch of halt_program", "(id ", "0.02 s", "step 0"}) {
      EXPECT_NE(error->message().find(part), std::string::npos) << error->what();
    }
    EXPECT_EQ(behind.outputs[0].to_host_checked("state").bytes, sent.bytes);
    EXPECT_FALSE(state.parts()[0].live()) << "a step was running";
    EXPECT_THROW(lost.outputs[0].to_host(), Error);
    EXPECT_TRUE(other.parts()[0].live());
  }
}

// All cores but one have nothing to do but to wait for that one.
TEST_F(Trust, LaunchBehindALongOneThatEndsItsStepsIsNotLate) {
  open(1e-4);
  const Executable single = load(1);
  const Executable gang = load(8);
  const HostArray sent = counting(DType::kI32, {256}, 5);
  const HostArray other = counting(DType::kI32, {16});
  const Array x = single.put(0, sent), y = single.put(1, other);
  const Array state = gang.put(0, sent), rest = gang.put(1, other);
  board_.synchronize();
  null_->endless_launches = 1;
  null_->looks_with_steps = 100;
  const RunResult slow = single.run({x, y});
  const RunResult behind = gang.run({state, rest});
  EXPECT_EQ(slow.done.wait_for_error(), nullptr);
  EXPECT_EQ(null_->looks_with_steps, 0);
  EXPECT_EQ(behind.done.wait_for_error(), nullptr);
  EXPECT_EQ(behind.outputs[0].to_host_checked("state").bytes, sent.bytes);
}

TEST_F(Trust, BoardThatDoesNotAbortAnEndlessLaunchIsGivenUp) {
  open(0.02);
  const Executable program = load(8);
  const Array other = program.put(1, counting(DType::kI32, {16}));
  null_->endless_launches = 1;
  null_->deaf_to_aborts = true;
  const RunResult lost = program.run({program.put(0, counting(DType::kI32, {256})), other});
  const auto error = lost.done.wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kTimeout) << error->what();
  EXPECT_NE(error->message().find("did not end when it was aborted"), std::string::npos);
  EXPECT_THROW(board_.put(0, counting(DType::kU8, {100})), Error);
}

// Completions that are there when the clock parks the board are taken at the interrupt, as without
// a clock: the order of calls and simulated time does not depend on wall-clock time.
TEST_F(Trust, ClockParksLetNothingHappen) {
  open(1000);
  const Executable program = load(8);
  const HostArray sent = counting(DType::kI32, {256}, 5);
  const Array other = program.put(1, counting(DType::kI32, {16}));
  null_->early_parks = true;
  Array state = program.put(0, sent);
  for (int i = 0; i < 5; ++i) {
    state = program.run({state, other}).outputs[0];
    EXPECT_EQ(state.to_host_checked("state").bytes, sent.bytes);
  }
  EXPECT_EQ(null_->calls_at_early_parks, 0u);
}

TEST_F(Trust, ImpossibleTimeLimitsAreRefused) {
  for (const double limit : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    try {
      open(limit);
      FAIL() << limit;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    }
  }
}

// A fault is remembered for its launch alone, and forgotten before the ids have come round.
TEST_F(Trust, LaunchIdsWrapPastAnAbortedOne) {
  open();
  const Executable program = load(8);
  const Array other = program.put(1, counting(DType::kI32, {16}));
  const HostArray sent = counting(DType::kI32, {256}, 5);
  const auto run_as = [&](uint32_t id) {
    Access::impl(board_)->set_last_launch(id - 1);
    const RunResult result = program.run({program.put(0, sent), other});
    const auto error = result.done.wait_for_error();
    EXPECT_TRUE(error != nullptr || result.outputs[0].to_host_checked("x").bytes == sent.bytes);
    return error;
  };
  constexpr uint32_t kFailed = 0xFFFFFFFE;
  null_->executor = [](NullLaunch& launch) -> std::optional<tpu_fault_record_t> {
    EXPECT_NE(launch.launch_id, 0u);
    tpu_fault_record_t fault{};
    fault.code = TPU_FAULT_VMEM_RANGE;
    fault.core = 2;
    return launch.launch_id == kFailed ? std::optional(fault) : std::nullopt;
  };
  EXPECT_NE(run_as(kFailed), nullptr);
  null_->executor = nullptr;
  for (const uint32_t id :
       {kFailed + 1, 0u, 1u, kFailed + 0x10000, kFailed + TPU_GSYNC_FORGET_AGE, kFailed}) {
    const auto error = run_as(id);
    EXPECT_EQ(error, nullptr) << id << ": " << error->what();
  }
}

}  // namespace
}  // namespace tpu::driver
