// What lies ahead of a sequencer: least cycles up to the next instruction that acts on another
// board, with loops, full queues, and what is not known.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "board/board_loader.hpp"
#include "command/scalar_ops.hpp"
#include "core/program_scout.hpp"
#include "program_builder.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::model::test {
namespace {

using spec::Queue;
using spec::ScalarOp;

constexpr uint64_t kFar = 1'000'000'000;
constexpr uint8_t kPeer = 9;  // register
constexpr uint32_t kOtherBoard = 8;

// A queue that has begun some commands and holds some.
class FakeQueue final : public CommandQueueIf {
 public:
  bool full() const override { return false; }
  QueuedCommand& next_slot() override { return slot_; }
  void push() override { waiting.push_back(slot_); }
  bool idle() const override { return waiting.empty(); }
  QueueHead head() const override { return {}; }
  const QueuedCommand* started(size_t /*index*/) const override { return nullptr; }
  const QueuedCommand* queued(size_t index) const override {
    return index < waiting.size() ? &waiting[index] : nullptr;
  }
  QueueStarts starts() const override { return {done, free_at, leaving}; }
  void watch(Task* /*task*/, uint32_t /*reason*/) override {}
  void stop() override {}
  void resume() override {}

  std::vector<QueuedCommand> waiting;
  uint64_t done = 0;
  uint64_t free_at = 0;
  bool leaving = false;

 private:
  QueuedCommand slot_;
};

class Scout : public ::testing::Test {
 protected:
  Scout() {
    EngineQueues::Queues all{};
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] = &fakes[i];
    }
    queues.connect(all);
    scout.connect([](uint32_t core) { return core >= kOtherBoard; });
  }
  void load(ProgramBuilder& builder) {
    const std::vector<uint8_t> image = builder.image();
    const auto bytes = std::as_bytes(std::span(image));
    tpu_program_image_header_t header;
    std::memcpy(&header, bytes.data(), sizeof header);
    program.emplace(std::vector<std::byte>(bytes.begin() + sizeof header, bytes.end()),
                    header.entry_word, 1, params);
    place.program = &*program;
    place.scalars = &scalars;
    scout.start();
  }
  uint64_t silent(uint64_t now, uint64_t wanted = kFar) {
    return scout.silent(place, queues, now, wanted);
  }
  FakeQueue& queue(Queue which) { return fakes[static_cast<size_t>(which)]; }
  // Of all commands of the program in its text, but the last `but` of a queue.
  uint64_t least(Queue which, size_t but) const {
    std::vector<uint64_t> cycles;
    for (const DecodedCommand& command : program->commands()) {
      if (command.queue == static_cast<uint8_t>(which)) {
        cycles.push_back(least_cycles(command));
      }
    }
    EXPECT_GT(cycles.size(), but);
    return std::accumulate(cycles.begin(), cycles.end() - static_cast<ptrdiff_t>(but), uint64_t{0});
  }

  const spec::BoardParams params = spec::load_board("v3_8");
  const size_t depth = static_cast<size_t>(params.core.queue_depth);
  std::array<FakeQueue, spec::kQueueCount> fakes;
  EngineQueues queues;
  std::optional<Program> program;
  ScalarUnit scalars;
  ProgramScout::Place place{};
  ProgramScout scout{depth};
};

void matmuls(ProgramBuilder& p, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    p.matmul(Queue::kMxu0, 0, 0x10000, 0x20000, 8 + 8 * static_cast<uint32_t>(i % 3), 128, 128, {});
  }
}

void send_to(ProgramBuilder& p, int32_t core) {
  p.li(kPeer, core);
  p.nop(Queue::kDmaRemote, Sync().remote(3, kPeer));
}

TEST_F(Scout, CountsWhatQueuesCannotHold) {
  ProgramBuilder p;
  matmuls(p, depth + 10);
  send_to(p, kOtherBoard);
  matmuls(p, 100);
  p.halt();
  load(p);
  uint64_t first = 0;  // in front of the last but `depth`
  for (size_t i = 0; i < 9; ++i) {
    first += least_cycles(program->command(static_cast<uint32_t>(i)));
  }
  EXPECT_EQ(silent(50), 50 + first);
  EXPECT_EQ(silent(50, 51), 50 + first) << "it has looked so far";
}

TEST_F(Scout, IsBehindTheLastCommandOfTheQueue) {
  ProgramBuilder p;
  matmuls(p, depth + 2);
  send_to(p, kOtherBoard);
  p.halt();
  load(p);
  queue(Queue::kMxu0).free_at = 700;
  EXPECT_EQ(silent(50), 700 + least_cycles(program->command(0)));
}

TEST_F(Scout, SaysNothingOfWhatQueuesHold) {
  ProgramBuilder p;
  matmuls(p, depth);
  send_to(p, kOtherBoard);
  p.halt();
  load(p);
  EXPECT_EQ(silent(50), 50);
}

TEST_F(Scout, PassesWhatStaysOnTheBoard) {
  ProgramBuilder p;
  send_to(p, kOtherBoard - 1);
  matmuls(p, depth + 40);
  p.halt();
  load(p);
  EXPECT_EQ(silent(0), least(Queue::kMxu0, depth + 1));
}

TEST_F(Scout, CountsTheTurnsOfLoops) {
  constexpr uint64_t kTurns = 1000;
  ProgramBuilder p;
  p.li(1, static_cast<int32_t>(kTurns));
  const uint32_t turn = p.here();
  p.matmul(Queue::kMxu0, 0, 0x10000, 0x20000, 8, 128, 128, {});
  p.scalar(ScalarOp::kAddi, 1, 1, 0, -1);
  p.scalar(ScalarOp::kBne, 0, 1, 0, static_cast<int32_t>(turn));
  send_to(p, kOtherBoard);
  p.halt();
  load(p);
  const uint64_t one = least_cycles(program->command(0));
  EXPECT_EQ(silent(0), (kTurns - depth - 1) * one);
}

TEST_F(Scout, ReadsReplicaCoresAndStep) {
  constexpr uint32_t kTurns = 1000;
  const auto turns_of = [&](ScalarOp op) {
    ProgramBuilder p;
    p.scalar(op, 1, 0, 0, 0);
    const uint32_t turn = p.here();
    p.matmul(Queue::kMxu0, 0, 0x10000, 0x20000, 8, 128, 128, {});
    p.scalar(ScalarOp::kAddi, 1, 1, 0, -1);
    p.scalar(ScalarOp::kBne, 0, 1, 0, static_cast<int32_t>(turn));
    send_to(p, kOtherBoard);
    p.halt();
    load(p);
    return silent(0) / least_cycles(program->command(0)) + depth + 1;
  };
  place.replica = kTurns;
  place.cores = kTurns + 1;
  place.step = kTurns + 2;
  EXPECT_EQ(turns_of(ScalarOp::kRid), kTurns);
  EXPECT_EQ(turns_of(ScalarOp::kNrep), kTurns + 1);
  EXPECT_EQ(turns_of(ScalarOp::kStep), kTurns + 2);
}

// A loop without commands is long: each look goes on where the one before has stopped.
TEST_F(Scout, GoesThroughScalarLoopsInSeveralLooks) {
  constexpr int32_t kTurns = 1000;
  ProgramBuilder p;
  p.li(1, kTurns);
  const uint32_t turn = p.here();
  p.scalar(ScalarOp::kAddi, 1, 1, 0, -1);
  p.scalar(ScalarOp::kBne, 0, 1, 0, static_cast<int32_t>(turn));
  matmuls(p, depth + 40);
  send_to(p, kOtherBoard);
  p.halt();
  load(p);
  EXPECT_EQ(silent(0), 0);
  int looks = 1;
  while (silent(0) == 0 && looks < kTurns) {
    ++looks;
  }
  EXPECT_LT(looks, kTurns / 100);
  EXPECT_EQ(silent(0), least(Queue::kMxu0, depth + 1));
}

TEST_F(Scout, StopsAtBranchesByData) {
  ProgramBuilder p;
  matmuls(p, depth + 5);
  p.scalar(ScalarOp::kLds32, 1, 0);
  const uint32_t branch = p.here();
  p.scalar(ScalarOp::kBne, 0, 1, 0, 0);
  matmuls(p, 1000);
  p.set_target(branch, p.here());
  send_to(p, kOtherBoard);
  p.halt();
  load(p);
  uint64_t first = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    first += least_cycles(program->command(i));
  }
  EXPECT_EQ(silent(0), first);
}

TEST_F(Scout, StopsAtCallsOfTheHost) {
  ProgramBuilder p;
  p.scalar(ScalarOp::kHcall);
  matmuls(p, 1000);
  p.halt();
  load(p);
  EXPECT_EQ(silent(10), 10);
}

// The sequencer has issued the command that acts: what is behind it counts.
TEST_F(Scout, LooksFurtherBehindWhatWasSent) {
  ProgramBuilder p;
  send_to(p, kOtherBoard);
  matmuls(p, depth + 40);
  send_to(p, kOtherBoard);
  p.halt();
  load(p);
  EXPECT_EQ(silent(0), 0);
  place.issued = 1;
  place.pc = program->item(1)->next;
  EXPECT_EQ(silent(7), 7 + least(Queue::kMxu0, depth + 1));
}

TEST_F(Scout, SaysNothingWhileSomethingWaitsToLeave) {
  ProgramBuilder p;
  matmuls(p, depth + 40);
  send_to(p, kOtherBoard);
  p.halt();
  load(p);
  EXPECT_GT(silent(5), 5);
  queue(Queue::kDmaRemote).leaving = true;
  EXPECT_EQ(silent(5), 5);
  queue(Queue::kDmaRemote).leaving = false;
  QueuedCommand& sent = queue(Queue::kDmaRemote).waiting.emplace_back();
  sent.command = &program->command(static_cast<uint32_t>(depth) + 40);
  sent.signal_peer[0] = kOtherBoard - 1;
  EXPECT_GT(silent(5), 5);
  sent.signal_peer[0] = kOtherBoard;
  EXPECT_EQ(silent(5), 5);
}

// What it says never falls, and no command that acts is issued before it: a sequencer that waits
// for full queues alone, and engines without pauses.
TEST_F(Scout, IsNeverLate) {
  ProgramBuilder p;
  for (const size_t count : {size_t{3}, depth + 7, size_t{0}, 5 * depth, size_t{1}, depth + 1}) {
    matmuls(p, count);
    send_to(p, kOtherBoard);
  }
  p.halt();
  load(p);
  FakeQueue& mxu = queue(Queue::kMxu0);
  uint64_t now = 0;
  uint64_t said = 0;
  uint32_t sends = 0;
  for (uint32_t word = program->entry(); sends < 6; ++now) {
    if (!mxu.waiting.empty() && mxu.free_at <= now) {
      mxu.free_at = now + least_cycles(*mxu.waiting.front().command);
      mxu.waiting.erase(mxu.waiting.begin());
      ++mxu.done;
    }
    const ProgramItem& item = *program->item(word);
    if (item.kind == ProgramItem::Kind::kScalar) {
      scalars.set(item.insn.rd, spec::scalar_result(item.insn, scalars.registers()));
      word = item.next;
    } else if (program->command(item.command).queue == static_cast<uint8_t>(Queue::kDmaRemote)) {
      ASSERT_GE(now, said);
      ++queue(Queue::kDmaRemote).done;
      ++sends;
      ++place.issued;
      word = item.next;
    } else if (mxu.waiting.size() < depth) {
      mxu.waiting.emplace_back().command = &program->command(item.command);
      ++place.issued;
      word = item.next;
    }
    place.pc = word;
    const uint64_t now_said = silent(now + 1, now + 1 + now % 3000);
    ASSERT_GE(now_said, said);
    said = now_said > now + 1 ? now_said : said;
  }
}

}  // namespace
}  // namespace tpu::model::test
