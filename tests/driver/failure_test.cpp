// What the driver does when something breaks, on the null board with its knobs: faults, aborts,
// dead harts, lost doorbells and interrupts, corrupt entries and images, hangs. After each of them
// the board is usable and nothing but the failed launch's buffers is lost.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/spec/core_page_regs.hpp"
#include "tpu/tpu.hpp"
#include "transport/null/null_transport.hpp"

namespace tpu::driver {
namespace {

using test::counting;
using test::ProgramBuilder;

class Failure : public ::testing::Test {
 protected:
  void open(const std::function<void(NullTransport&)>& prepare = [](NullTransport&) {}) {
    board_ = test::open_null(null_, {}, prepare);
  }

  // One argument of 256 i32 that is donated to the result, one that is only read.
  Executable load(uint32_t partitions, int device = 0) {
    ProgramBuilder builder(partitions);
    builder.argument(DType::kI32, {256});
    builder.argument(DType::kI32, {16});
    builder.result(DType::kI32, {256}, false, 0);
    builder.scratch(4096);
    return board_.load(builder.bytes(), device);
  }

  static std::shared_ptr<const Error> error_of(const Event& event) {
    return event.wait_for_error();
  }

  tpu_fault_record_t record(uint16_t code, int core) {
    tpu_fault_record_t fault{};
    fault.code = static_cast<uint8_t>(code);
    fault.core = static_cast<uint8_t>(core);
    fault.op_id = 0;
    fault.engine = 2;
    fault.pc = 17;
    return fault;
  }

  void expect_usable() {
    const Executable program = load(8);
    const HostArray sent = counting(DType::kI32, {256}, 99);
    const RunResult result =
        program.run({program.put(0, sent), program.put(1, counting(DType::kI32, {16}))});
    EXPECT_EQ(result.outputs[0].to_host_checked("x").bytes, sent.bytes);
  }

  NullTransport* null_ = nullptr;
  Board board_;
};

TEST_F(Failure, ExecutorSeesSlotsAndChangesMemory) {
  open();
  null_->executor = [](NullLaunch& launch) -> std::optional<tpu_fault_record_t> {
    for (NullLaunchPart& part : launch.parts) {
      std::vector<std::byte> data(part.slots[0].size);
      part.hbm->read(part.slots[0].base, data);
      for (std::byte& value : data) {
        value = static_cast<std::byte>(static_cast<uint8_t>(value) + 1);
      }
      part.hbm->write(part.slots[0].base, data);
    }
    return std::nullopt;
  };
  const Executable program = load(8);
  HostArray sent = counting(DType::kI32, {256});
  const Array other = program.put(1, counting(DType::kI32, {16}));
  Array state = program.put(0, sent);
  state = program.run({state, other}).outputs[0];
  state = program.run({state, other}, {.steps = 4, .keep = {}}).outputs[0];
  for (std::byte& value : sent.bytes) {
    value = static_cast<std::byte>(static_cast<uint8_t>(value) + 5);
  }
  EXPECT_EQ(state.to_host_checked("state").bytes, sent.bytes);
}

TEST_F(Failure, FaultNamesOpAndSourceAndKeepsEverythingElse) {
  open();
  const Executable program = load(8);
  const Array kept = program.put(1, counting(DType::kI32, {16}));
  const Array state = program.put(0, counting(DType::kI32, {256}));
  null_->executor = [&](NullLaunch&) {
    tpu_fault_record_t fault = record(TPU_FAULT_SLOT_RANGE, 5);
    fault.address = 0x1234;
    fault.length = 64;
    fault.slot = 1;
    return std::optional(fault);
  };
  const RunResult result = program.run({state, kept});
  const auto error = error_of(result.done);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kDeviceFault);
  EXPECT_EQ(error->place().device, 5);
  EXPECT_EQ(error->place().op, "dot_general");
  EXPECT_EQ(error->place().source, "model.py:42");
  EXPECT_NE(error->message().find("SLOT_RANGE"), std::string::npos);
  EXPECT_NE(error->message().find("engine vpu"), std::string::npos) << error->message();
  EXPECT_NE(error->message().find("0x1234, 64 bytes, slot 1"), std::string::npos);
  null_->executor = nullptr;
  EXPECT_THROW(result.outputs[0].to_host(), Error);
  EXPECT_FALSE(state.parts()[0].live());
  EXPECT_EQ(kept.to_host_checked("kept").bytes, counting(DType::kI32, {16}).bytes);
  expect_usable();
  EXPECT_EQ(board_.counters().recoveries, 1u);
}

TEST_F(Failure, QueuedWorkIsSentAgainUnlessItsInputsAreLost) {
  open();
  const Executable program = load(8);
  const Executable single = load(1, 3);
  const HostArray sent = counting(DType::kI32, {256}, 40);
  const Array other = program.put(1, counting(DType::kI32, {16}));
  const Array single_other = single.put(1, counting(DType::kI32, {16}));
  int launches = 0;
  null_->executor = [&](NullLaunch&) -> std::optional<tpu_fault_record_t> {
    ++launches;
    return launches == 1 ? std::optional(record(TPU_FAULT_DESCRIPTOR, 2)) : std::nullopt;
  };
  board_.synchronize();
  const Array doomed = program.put(0, counting(DType::kI32, {256}));
  const RunResult bad = program.run({doomed, other});
  const RunResult dependent = program.run({bad.outputs[0], other});
  const RunResult third = program.run({dependent.outputs[0], other});
  const Array fresh = program.put(0, sent);  // uploads behind the fault
  const RunResult good = program.run({fresh, other});
  const RunResult alone = single.run({single.put(0, sent), single_other});
  EXPECT_EQ(good.outputs[0].to_host_checked("good").bytes, sent.bytes);
  EXPECT_EQ(alone.outputs[0].to_host().bytes, sent.bytes);
  for (const RunResult* lost : {&bad, &dependent, &third}) {
    const auto error = error_of(lost->done);
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code(), ErrorCode::kDeviceFault);
    EXPECT_EQ(error->place().device, 2);
  }
  EXPECT_EQ(launches, 3);
}

// The null board runs firmware/rt: it counts its turns, and only the core that faults has a record.
TEST_F(Failure, TheFirmwareRunsOnTheNullBoard) {
  open();
  const Executable program = load(8);
  const Array other = program.put(1, counting(DType::kI32, {16}));
  null_->executor = [&](NullLaunch&) { return std::optional(record(TPU_FAULT_VMEM_RANGE, 5)); };
  EXPECT_NE(error_of(program.run({program.put(0, counting(DType::kI32, {256})), other}).done),
            nullptr);
  namespace core_page = spec::core_page;
  for (int core = 0; core < 8; ++core) {
    const auto read = [&](uint64_t offset) {
      const uint64_t page = core_page::kBase + static_cast<uint64_t>(core % 2) * core_page::kStride;
      return null_->read32(core / 2, 0, page + offset);
    };
    EXPECT_GT(read(core_page::kHeartbeat), 5u) << core;
    EXPECT_EQ(read(core_page::kFaultSeq), core == 5 ? 1u : 0u) << core;
    EXPECT_EQ(read(core_page::kEpoch), 1u) << core;
  }
  null_->executor = nullptr;
  expect_usable();
}

TEST_F(Failure, ReadsBehindAFaultStillArrive) {
  open();
  const Executable program = load(1, 4);
  const HostArray sent = counting(DType::kI32, {16}, 3);
  const Array other = program.put(1, sent);
  null_->executor = [&](NullLaunch&) { return std::optional(record(TPU_FAULT_VMEM_RANGE, 4)); };
  const RunResult bad = program.run({program.put(0, counting(DType::kI32, {256})), other});
  HostArray back{DType::kI32, {16}, std::vector<std::byte>(64)};
  const Event read = other.parts()[0].read(back.bytes);
  read.wait();
  EXPECT_EQ(back.bytes, sent.bytes);
  EXPECT_NE(error_of(bad.done), nullptr);
}

TEST_F(Failure, HangEndsWithWhoWaitsForWhom) {
  open();
  const Executable program = load(8);
  null_->stuck_launches = 1;
  const RunResult result = program.run(
      {program.put(0, counting(DType::kI32, {256})), program.put(1, counting(DType::kI32, {16}))});
  const auto error = error_of(result.done);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kDeviceFault);
  EXPECT_NE(error->message().find("was told to hang"), std::string::npos) << error->message();
  expect_usable();
}

TEST_F(Failure, LostDoorbellIsRungAgain) {
  open();
  null_->drop_doorbells = 1;
  const HostArray sent = counting(DType::kU8, {100});
  EXPECT_EQ(board_.put(2, sent).to_host().bytes, sent.bytes);
  // The second doorbell (of the read) carries the same absolute count, so nothing had to be
  // repeated.
  null_->drop_doorbells = 1;
  board_.put(2, sent).ready().wait();
  EXPECT_EQ(board_.counters().repeated_doorbells, 1u);
}

TEST_F(Failure, LostInterruptsChangeNothing) {
  open();
  null_->drop_interrupts = 50;
  const HostArray sent = counting(DType::kU8, {100});
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(board_.put(i % 8, sent).to_host().bytes, sent.bytes);
  }
}

TEST_F(Failure, CorruptEntryIsSentAgainOnce) {
  open();
  const HostArray sent = counting(DType::kU8, {100});
  null_->corrupt_entries = 1;
  EXPECT_EQ(board_.put(2, sent).to_host().bytes, sent.bytes);
  null_->corrupt_entries = 2;
  const Buffer lost = board_.put(2, sent);
  const auto error = error_of(lost.ready());
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kInternal);
  EXPECT_NE(error->message().find("BAD_CRC"), std::string::npos);
  EXPECT_FALSE(lost.live());
  expect_usable();
}

// Nothing else is queued that would show the driver that the core is held.
TEST_F(Failure, CorruptEntriesOfLoadsAndReadsAndCountersAreSentAgain) {
  open();
  const HostArray sent = counting(DType::kI32, {256});
  for (int round = 0; round < 3; ++round) {
    null_->corrupt_entries = 1;
    const Executable program = load(1, 2);
    const Array state = program.put(0, sent);
    const Array other = program.put(1, counting(DType::kI32, {16}));
    board_.synchronize();
    null_->corrupt_entries = 1;
    EXPECT_EQ(state.to_host().bytes, sent.bytes);
    null_->corrupt_entries = 1;
    EXPECT_EQ(board_.counters().cores.size(), 8u);
    null_->good_entries = 1;
    null_->corrupt_entries = 1;
    EXPECT_EQ(program.run({state, other}).outputs[0].to_host().bytes, sent.bytes);
    null_->good_entries = 0;
  }
}

TEST_F(Failure, CorruptLaunchEntryOfOneCoreIsSentAgain) {
  open();
  const Executable program = load(8);
  const HostArray sent = counting(DType::kI32, {256});
  const Array state = program.put(0, sent);
  const Array other = program.put(1, counting(DType::kI32, {16}));
  board_.synchronize();
  null_->corrupt_entries = 1;
  EXPECT_EQ(program.run({state, other}).outputs[0].to_host_checked("x").bytes, sent.bytes);
}

TEST_F(Failure, DeadHartIsStartedAgainWithItsPrograms) {
  open();
  const Executable program = load(8);
  const HostArray sent = counting(DType::kI32, {256});
  const Array other = program.put(1, counting(DType::kI32, {16}));
  const Array state = program.put(0, sent);
  board_.synchronize();
  null_->dead_on_launch = 6;
  const RunResult lost = program.run({program.put(0, sent), other});
  const auto error = error_of(lost.done);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kDeviceFault);
  EXPECT_EQ(error->place().device, 6);
  EXPECT_NE(error->message().find("FW_TRAP"), std::string::npos) << error->message();
  EXPECT_EQ(program.run({state, other}).outputs[0].to_host_checked("x").bytes, sent.bytes);
  expect_usable();
}

TEST_F(Failure, CorruptFirmwareIsTriedTwice) {
  open([](NullTransport& null) { null.corrupt_images = 1; });
  expect_usable();
  board_.close();
  try {
    open([](NullTransport& null) { null.corrupt_images = 9; });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_NE(error.message().find("firmware image corrupt"), std::string::npos);
  }
}

TEST_F(Failure, WrongRingVersionIsRefused) {
  try {
    open([](NullTransport& null) { null.firmware_abi = TPU_RING_ABI + 0x10000; });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition) << error.what();
  }
}

// Chip 3 does not answer: its registers read all ones.
class MissingChip : public NullTransport {
 public:
  using NullTransport::NullTransport;
  uint32_t read32(int chip, int bar, uint64_t offset) override {
    return chip == 3 ? 0xFFFFFFFFu : NullTransport::read32(chip, bar, offset);
  }
};

TEST_F(Failure, ABoardWithAMissingChipIsUnavailable) {
  MissingChip* null = nullptr;
  try {
    test::open_null(null);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    EXPECT_NE(error.message().find("no chip 3"), std::string::npos) << error.what();
  }
}

TEST_F(Failure, BrokenModelEndsEverythingWithItsText) {
  open();
  const Buffer buffer = board_.put(0, counting(DType::kU8, {100}));
  null_->throw_in_run = true;
  const auto error = error_of(buffer.ready());
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kInternal);
  EXPECT_NE(error->message().find("told to break"), std::string::npos);
  for (const ErrorCode code : {ErrorCode::kInternal, ErrorCode::kUnavailable}) {
    try {
      board_.put(0, counting(DType::kU8, {100}));
      FAIL();
    } catch (const Error& later) {
      EXPECT_EQ(later.code(), code);
      EXPECT_NE(later.message().find("told to break"), std::string::npos) << later.what();
    }
  }
}

TEST_F(Failure, BackpressureKeepsTheRingsFromOverflowing) {
  open();
  std::vector<Buffer> buffers;
  for (int i = 0; i < 2000; ++i) {
    buffers.push_back(board_.put(1, counting(DType::kU8, {8})));
  }
  board_.synchronize();
  EXPECT_LE(null_->most_outstanding, 224u);
  EXPECT_GE(null_->most_outstanding, 200u);
}

TEST_F(Failure, ClosingWithWorkInFlightCancelsIt) {
  open();
  const Executable program = load(8);
  null_->stuck_launches = 1;
  const RunResult result = program.run(
      {program.put(0, counting(DType::kI32, {256})), program.put(1, counting(DType::kI32, {16}))});
  board_.close(CloseMode::kCancel);
  const auto error = error_of(result.done);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kCancelled) << error->what();
}

TEST_F(Failure, DroppingAllHandlesEndsTheBoard) {
  Event done;
  {
    open();
    const Executable program = load(1);
    done = program
               .run({program.put(0, counting(DType::kI32, {256})),
                     program.put(1, counting(DType::kI32, {16}))})
               .done;
    board_ = Board();
  }
  EXPECT_TRUE(done.ready());
}

}  // namespace
}  // namespace tpu::driver
