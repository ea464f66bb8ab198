// Cycles by operation: of the foremost engine, of the oldest of its commands, of nobody.
#include "probe/op_times_sink.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tpu::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MATCHER_P4(IsOp, op_id, cycles, busy_cycles, commands, "") {
  *result_listener << "op " << arg.op_id << ": " << arg.cycles << ", " << arg.busy_cycles << ", "
                   << arg.commands;
  return arg.op_id == op_id && arg.cycles == cycles && arg.busy_cycles == busy_cycles &&
         arg.commands == static_cast<uint64_t>(commands);
}

class OpTimes : public ::testing::Test {
 protected:
  void step(bool begin, uint64_t cycle, uint32_t core = 0, uint32_t launch = 5) {
    sink_.program({.cycle = cycle, .core = core, .launch = launch, .begin = begin});
  }
  static ProbeSource source(spec::Queue queue, uint32_t op_id, uint64_t sequence, uint32_t core,
                            spec::Opcode opcode) {
    return {.core = core,
            .unit = static_cast<uint32_t>(queue),
            .sequence = sequence,
            .op_id = op_id,
            .opcode = static_cast<uint8_t>(opcode)};
  }
  void start(uint64_t cycle, spec::Queue queue, uint32_t op_id, uint64_t sequence,
             uint32_t core = 0, spec::Opcode opcode = spec::Opcode::kDma) {
    sink_.start({.cycle = cycle, .source = source(queue, op_id, sequence, core, opcode)});
  }
  void done(uint64_t cycle, spec::Queue queue, uint32_t op_id, uint64_t sequence, uint32_t core = 0,
            spec::Opcode opcode = spec::Opcode::kDma) {
    sink_.done({.cycle = cycle, .source = source(queue, op_id, sequence, core, opcode)});
  }

  OpTimesSink sink_{2};
};

TEST_F(OpTimes, ATransferThatArithmeticHidesCostsNothing) {
  step(true, 100);
  start(110, spec::Queue::kDmaIn, 1, 1);
  start(130, spec::Queue::kVpu, 2, 2);
  start(140, spec::Queue::kMxu0, 3, 3);
  done(150, spec::Queue::kDmaIn, 1, 1);
  done(170, spec::Queue::kMxu0, 3, 3);
  done(180, spec::Queue::kVpu, 2, 2);
  step(false, 200);
  // 100 to 110 and 180 to 200: nothing; to 130 the transfer, to 140 the vector unit, to 170 the
  // matrix unit, to 180 the vector unit again.
  EXPECT_THAT(sink_.take_launch(5),
              ElementsAre(IsOp(1U, 20U, 40U, 1), IsOp(2U, 20U, 50U, 1), IsOp(3U, 30U, 30U, 1),
                          IsOp(OpTime::kNoOp, 30U, 0U, 0)));
  EXPECT_THAT(sink_.take_launch(5), IsEmpty());
}

TEST_F(OpTimes, TheOldestCommandOfAQueueCounts) {
  step(true, 0);
  start(0, spec::Queue::kVpu, 7, 1);
  start(10, spec::Queue::kVpu, 8, 2);
  start(20, spec::Queue::kVpu, 7, 3);
  done(30, spec::Queue::kVpu, 7, 1);
  done(50, spec::Queue::kVpu, 8, 2);
  done(60, spec::Queue::kVpu, 7, 3);
  step(false, 60);
  EXPECT_THAT(sink_.take_launch(5), ElementsAre(IsOp(7U, 40U, 60U, 2), IsOp(8U, 20U, 40U, 1)));
}

TEST_F(OpTimes, CoresAndStepsAreSummedAndLaunchesAreNot) {
  for (const uint32_t launch : {5U, 6U}) {
    for (const uint32_t core : {0U, 1U}) {
      step(true, 10 * launch, core, launch);
      start(10 * launch, spec::Queue::kXlu, 1, launch, core);
      done(10 * launch + 4, spec::Queue::kXlu, 1, launch, core);
      step(false, 10 * launch + 4, core, launch);
    }
  }
  EXPECT_THAT(sink_.take_launch(6), ElementsAre(IsOp(1U, 8U, 8U, 2)));
  EXPECT_THAT(sink_.take_launch(5), ElementsAre(IsOp(1U, 8U, 8U, 2)));
}

TEST_F(OpTimes, WhatBeganUnheardAndNopsAreLeftOut) {
  start(5, spec::Queue::kVpu, 1, 1);
  done(9, spec::Queue::kVpu, 1, 1);
  step(false, 10);
  step(true, 20);
  start(20, spec::Queue::kVpu, 2, 2, 0, spec::Opcode::kNop);
  done(21, spec::Queue::kVpu, 2, 2, 0, spec::Opcode::kNop);
  done(22, spec::Queue::kVpu, 1, 1);  // of a step that a fault ended
  step(false, 30);
  EXPECT_THAT(sink_.take_launch(5), ElementsAre(IsOp(OpTime::kNoOp, 10U, 0U, 0)));
}

}  // namespace
}  // namespace tpu::model
