// Loops without drains: every conflict is ordered, over two iterations and at both ends, and
// semaphores are zero behind them whatever the number of iterations, two or more.
#include "program/loop_fences.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>

#include "board/board_loader.hpp"
#include "ir/error.hpp"
#include "program/encode.hpp"
#include "program/semaphores.hpp"
#include "program/timed_gang.hpp"
#include "tpu/spec/program_image.h"

namespace tpu::compiler {
namespace {

using spec::Queue;
using spec::ScalarOp;

constexpr int kSemaphores = 128;

MemRange bytes(int64_t lo, int64_t hi, bool write) {
  MemRange m;
  m.lo = lo;
  m.hi = hi;
  m.write = write;
  return m;
}

Command on(Queue queue, std::vector<MemRange> windows) {
  Command c;
  c.body = make_command<spec::NopCommand>(spec::Opcode::kNop, queue, 0);
  c.windows = std::move(windows);
  return c;
}

Control control(Control::Kind kind, int label = -1) {
  Control c;
  c.kind = kind;
  c.label = label;
  return c;
}

// `body` between the drains, label and branch of a loop whose engines may stay busy.
void add_loop(Listing& l, int64_t trips, const std::function<void()>& body) {
  const int top = l.labels++;
  l.append(ScalarOp::kLi, 27, 0, 0, 0);
  l.append(control(Control::Kind::kDrain));
  l.append(control(Control::Kind::kLabel, top));
  Control loop = control(Control::Kind::kLoop);
  loop.trips = trips;
  loop.flows = true;
  l.append(loop);
  l.append(ScalarOp::kMarkb, 0, 0, 0, 0);
  body();
  l.append(control(Control::Kind::kDrain));
  l.append(ScalarOp::kMarke, 0, 0, 0, 0);
  l.append(ScalarOp::kAddi, 27, 27, 0, 1);
  l.append(ScalarOp::kLi, 31, 0, 0, static_cast<int32_t>(trips));
  Control branch = control(Control::Kind::kBranch, top);
  branch.insn = {static_cast<uint8_t>(ScalarOp::kBne), 0, 27, 31, 0};
  l.append(branch);
  l.append(control(Control::Kind::kEnd));
}

void add_random(Listing& l, std::mt19937& random, size_t commands, size_t queues) {
  for (size_t i = 0; i < commands; ++i) {
    std::vector<MemRange> windows;
    for (int r = 0; r < 2; ++r) {
      const auto lo = static_cast<int64_t>(random() % 16) * 64;
      windows.push_back(
          bytes(lo, lo + 64 * static_cast<int64_t>(1 + random() % 3), random() % 3 == 0));
    }
    l.append(on(static_cast<Queue>(random() % queues), std::move(windows)));
  }
}

// A listing in issue order with every loop turned `trips` times; what a command waits for, by its
// semaphores alone.
class Unrolled {
 public:
  Unrolled(const Listing& l, int trips) {
    std::vector<size_t> tops;
    std::vector<int> left;
    for (size_t i = 0; i < l.items.size(); ++i) {
      if (const auto* command = std::get_if<Command>(&l.items[i])) {
        add(*command);
      } else if (const auto* insn = std::get_if<spec::ScalarInsn>(&l.items[i])) {
        add(*insn);
      } else if (const auto& c = std::get<Control>(l.items[i]); c.kind == Control::Kind::kLoop) {
        tops.push_back(i);
        left.push_back(trips);
      } else if (c.kind == Control::Kind::kEnd && !tops.empty()) {
        if (--left.back() > 0) {
          i = tops.back();
        } else {
          tops.pop_back();
          left.pop_back();
        }
      }
    }
  }

  // Pairs of conflicting commands of which no chain orders one behind the other.
  int unordered() const {
    int bad = 0;
    for (size_t b = 0; b < command_.size(); ++b) {
      for (size_t a = 0; a < b; ++a) {
        for (const MemRange& x : command_[a]->windows) {
          for (const MemRange& y : command_[b]->windows) {
            bad += (x.write || y.write) && ranges_overlap(x, y) && !reach_[b][a] ? 1 : 0;
          }
        }
      }
    }
    return bad;
  }

  // Semaphores that are not zero at the end, that are waited for before they are signalled, or
  // that have a second producer or waiter.
  int wrong_semaphores() const {
    int wrong = early_;
    for (const auto& [number, s] : semaphore_) {
      wrong += s.taken != s.signals.size() ? 1 : 0;
      wrong += s.waiters.size() > 1 ? 1 : 0;
      wrong += s.producers.size() > 1 && !s.waiters.contains(kSequencer) ? 1 : 0;
    }
    return wrong;
  }

  size_t semaphores() const { return semaphore_.size(); }

 private:
  static constexpr size_t kSequencer = spec::kQueueCount;
  struct Semaphore {
    std::vector<size_t> signals;  // commands, one for each count
    size_t taken = 0;
    std::set<size_t> producers, waiters;
  };

  void add(const Command& command) {
    const size_t b = command_.size();
    command_.push_back(&command);
    reach_.emplace_back(sequencer_);
    reach_.back().resize(b + 1);
    const auto queue = static_cast<size_t>(command.queue());
    if (const auto last = last_.find(queue); last != last_.end()) {
      know(reach_.back(), last->second);
    }
    last_[queue] = b;
    for (const spec::Wait& w : command.head().wait) {
      if (w.valid()) {
        EXPECT_TRUE(w.take());
        take(w.sem, w.value, queue, reach_.back());
      }
    }
    for (const spec::Signal& s : command.head().signal) {
      if (s.valid()) {
        semaphore_[s.sem].producers.insert(queue);
        semaphore_[s.sem].signals.insert(semaphore_[s.sem].signals.end(), s.value, b);
      }
    }
  }

  void add(const spec::ScalarInsn& insn) {
    if (static_cast<ScalarOp>(insn.op) == ScalarOp::kSwait) {
      sequencer_.resize(command_.size());
      take(insn.rs1, static_cast<size_t>(insn.imm), kSequencer, sequencer_);
    }
  }

  void know(std::vector<bool>& known, size_t command) const {
    known[command] = true;
    for (size_t a = 0; a < command; ++a) {
      known[a] = known[a] || reach_[command][a];
    }
  }

  // Counts are met in the order of their signals, as all of them come of one queue.
  void take(int number, size_t count, size_t unit, std::vector<bool>& known) {
    Semaphore& s = semaphore_[number];
    s.waiters.insert(unit);
    if (s.taken + count > s.signals.size()) {
      ++early_;
      return;
    }
    for (; count > 0; --count) {
      know(known, s.signals[s.taken++]);
    }
  }

  std::vector<const Command*> command_;
  std::vector<std::vector<bool>> reach_;  // by command: those that are done before it starts
  std::vector<bool> sequencer_;
  std::map<size_t, size_t> last_;
  std::map<int, Semaphore> semaphore_;
  int early_ = 0;
};

int drains_waited_for(const Listing& l) {
  int waits = 0;
  for (const Item& item : l.items) {
    const auto* insn = std::get_if<spec::ScalarInsn>(&item);
    waits += insn != nullptr && static_cast<ScalarOp>(insn->op) == ScalarOp::kSwait ? 1 : 0;
  }
  return waits;
}

TEST(LoopFences, RandomLoopsAreOrderedForEveryNumberOfIterations) {
  size_t carried = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    const size_t queues = 3 + seed % 5;
    Listing l;
    add_random(l, random, 8, queues);
    add_loop(l, 5, [&] { add_random(l, random, 4 + seed % 9, queues); });
    add_random(l, random, 4, queues);
    add_loop(l, 5, [&] { add_random(l, random, 6, queues); });
    add_random(l, random, 8, queues);
    for (const SyncEdge& edge : insert_semaphores(l, kSemaphores).edges) {
      carried += edge.carried ? 1 : 0;
    }
    EXPECT_EQ(drains_waited_for(l), 0) << "seed " << seed;
    for (const int trips : {2, 3, 6}) {
      const Unrolled unrolled(l, trips);
      ASSERT_EQ(unrolled.unordered(), 0) << "seed " << seed << ", " << trips << " iterations";
      ASSERT_EQ(unrolled.wrong_semaphores(), 0) << "seed " << seed << ", " << trips;
    }
  }
  EXPECT_GT(carried, 100u);
}

// The edges of the first and the last iteration alone do not order the loop.
TEST(LoopFences, ALoopWithoutItsCarriedEdgesIsNotOrdered) {
  Listing l;
  add_loop(l, 4, [&] {
    l.append(on(Queue::kDmaIn, {bytes(0, 64, true)}));
    l.append(on(Queue::kVpu, {bytes(0, 64, false)}));
  });
  const SyncResult sync = insert_semaphores(l, kSemaphores);
  ASSERT_EQ(sync.edges.size(), 3u);  // load to use; use to the next load; the credit of that one
  EXPECT_TRUE(sync.edges[1].carried);
  EXPECT_FALSE(sync.edges[2].carried);
  EXPECT_EQ(Unrolled(l, 4).unordered(), 0);
  EXPECT_EQ(Unrolled(l, 4).semaphores(), 2u);
  for (Item& item : l.items) {
    if (auto* command = std::get_if<Command>(&item)) {
      for (spec::Wait& w : command->head().wait) {
        w.flags = command->queue() == Queue::kDmaIn ? 0 : w.flags;
      }
    }
  }
  EXPECT_GT(Unrolled(l, 4).unordered(), 0);
}

// Two loads ahead of their uses: the second load of an iteration need not wait for the first use.
TEST(LoopFences, ALoadWaitsForTheUseOfItsOwnPlaceOnly) {
  Listing l;
  add_loop(l, 4, [&] {
    for (int64_t place = 0; place < 2; ++place) {
      l.append(on(Queue::kDmaIn, {bytes(64 * place, 64 * place + 64, true)}));
      l.append(on(Queue::kVpu, {bytes(64 * place, 64 * place + 64, false)}));
    }
  });
  int carried = 0;
  for (const SyncEdge& edge : insert_semaphores(l, kSemaphores).edges) {
    carried += edge.carried ? 1 : 0;
  }
  EXPECT_EQ(carried, 2);
}

// More carried edges of a pair of queues than a signal can count.
TEST(LoopFences, CreditsBeyondOneSignalAreSplit) {
  constexpr int64_t kPlaces = 300;
  Listing l;
  add_loop(l, 3, [&] {
    for (int64_t place = 0; place < kPlaces; ++place) {
      l.append(on(Queue::kDmaIn, {bytes(64 * place, 64 * place + 64, true)}));
    }
    for (int64_t place = 0; place < kPlaces; ++place) {
      l.append(on(Queue::kVpu, {bytes(64 * place, 64 * place + 64, false)}));
    }
  });
  int most = 0;
  for (const SyncEdge& edge : insert_semaphores(l, kSemaphores).edges) {
    most = std::max(most, edge.count);
  }
  EXPECT_EQ(most, kPlaces);
  EXPECT_EQ(Unrolled(l, 2).unordered(), 0);
  EXPECT_EQ(Unrolled(l, 2).wrong_semaphores(), 0);
}

TEST(LoopFences, TheSequencerWaitsForACommandOfItsIteration) {
  Listing l;
  add_loop(l, 4, [&] {
    l.append(on(Queue::kVpu, {bytes(0, 64, true)}));
    Control wait = control(Control::Kind::kWait);
    wait.item = l.append(on(Queue::kDmaIn, {bytes(0, 64, false)}));
    l.append(wait);
  });
  insert_semaphores(l, kSemaphores);
  EXPECT_EQ(drains_waited_for(l), 1);
  EXPECT_EQ(Unrolled(l, 4).unordered(), 0);
  EXPECT_EQ(Unrolled(l, 4).wrong_semaphores(), 0);
}

TEST(LoopFences, OfNestedLoopsTheInnerOneFlows) {
  Listing l;
  const auto work = [&] {
    l.append(on(Queue::kDmaIn, {bytes(0, 64, true)}));
    l.append(on(Queue::kVpu, {bytes(0, 64, false)}));
  };
  add_loop(l, 4, [&] {
    work();
    add_loop(l, 3, work);
    work();
  });
  insert_semaphores(l, kSemaphores);
  EXPECT_EQ(drains_waited_for(l), 1);  // at the outer back edge; nothing runs at the outer entry
  for (const int trips : {2, 3}) {
    EXPECT_EQ(Unrolled(l, trips).unordered(), 0);
    EXPECT_EQ(Unrolled(l, trips).wrong_semaphores(), 0);
  }
}

// A loop that needs its drain: `change` makes it so.
void expect_drains(int64_t trips, const std::function<void(Listing&)>& change) {
  Listing l;
  add_loop(l, trips, [&] {
    l.append(on(Queue::kDmaIn, {bytes(0, 64, true)}));
    l.append(on(Queue::kVpu, {bytes(0, 64, false)}));
    change(l);
  });
  insert_semaphores(l, kSemaphores);
  EXPECT_GE(drains_waited_for(l), 1);
}

TEST(LoopFences, LoopsThatNeedADrainKeepIt) {
  expect_drains(1, [](Listing&) {});
  expect_drains(4, [](Listing& l) {
    Command answered = on(Queue::kVpu, {});
    answered.implies = {0};
    l.append(answered);
  });
  expect_drains(4, [](Listing& l) { l.append(control(Control::Kind::kDrain)); });
  expect_drains(4, [](Listing& l) {  // the next iteration overwrites what a command reads
    l.append(ScalarOp::kSts32, 0, 0, 27, 512);
    MemRange word = bytes(512, 516, false);
    word.space = spec::Space::kSmem;
    l.append(on(Queue::kDmaIn, {word}));
  });
}

TEST(LoopFences, WithTooFewSemaphoresLoopsAreDrained) {
  const auto make = [] {
    Listing l;
    add_loop(l, 4, [&] {
      l.append(on(Queue::kDmaIn, {bytes(0, 64, true)}));
      l.append(on(Queue::kVpu, {bytes(0, 64, false)}));
      l.append(on(Queue::kDmaOut, {bytes(0, 64, false)}));
    });
    return l;
  };
  Listing flows = make(), drained = make();
  EXPECT_EQ(insert_semaphores(flows, 4).semaphores, 4);
  EXPECT_EQ(drains_waited_for(flows), 0);
  EXPECT_EQ(insert_semaphores(drained, 3).semaphores, 3);
  EXPECT_EQ(drains_waited_for(drained), 1);
  EXPECT_EQ(Unrolled(drained, 4).unordered(), 0);
  EXPECT_EQ(Unrolled(drained, 4).wrong_semaphores(), 0);
  Listing none = make();
  EXPECT_THROW(insert_semaphores(none, 2), Error);
}

TEST(LoopFences, OneLoopLosesItsFencesAlone) {
  Listing l;
  for (int n = 0; n < 2; ++n) {
    add_loop(l, 4, [&] {
      l.append(on(Queue::kDmaIn, {bytes(0, 64, true)}));
      l.append(on(Queue::kVpu, {bytes(0, 64, false)}));
    });
  }
  const auto flowing = [&] {
    std::pair<int64_t, int64_t> drains_and_fences{0, 0};
    for (const Item& item : l.items) {
      const auto* control = std::get_if<Control>(&item);
      const auto* command = std::get_if<Command>(&item);
      drains_and_fences.first +=
          control != nullptr && control->kind == Control::Kind::kDrain && control->flows ? 1 : 0;
      drains_and_fences.second += command != nullptr && command->fence != Fence::kNone ? 1 : 0;
    }
    return drains_and_fences;
  };
  const std::vector<FlowingLoop> loops = add_loop_fences(l);
  ASSERT_EQ(loops.size(), 2u);
  EXPECT_EQ(flowing(), std::pair(int64_t{4}, int64_t{16}));
  drop_loop_fences(l, loops[0]);
  EXPECT_EQ(flowing(), std::pair(int64_t{2}, int64_t{8}));
  drop_loop_fences(l, loops[1]);
  EXPECT_EQ(flowing(), std::pair(int64_t{0}, int64_t{0}));
}

// Loads of 64 KiB into two places in turn, stored from there.
uint64_t streamed_cycles(int64_t trips, uint64_t most_commands) {
  constexpr int64_t kBytes = 65536;
  const spec::BoardParams board = spec::load_board("v3_8");
  Listing l;
  add_loop(l, trips, [&] {
    for (int64_t place = 0; place < 2; ++place) {
      for (const bool store : {false, true}) {
        auto c = make_command<spec::DmaCommand>(spec::Opcode::kDma,
                                                store ? Queue::kDmaOut : Queue::kDmaIn, 0);
        c.src = store ? vmem_addr(place * kBytes) : hbm_addr(0, place * kBytes);
        c.dst = store ? hbm_addr(1, place * kBytes) : vmem_addr(place * kBytes);
        c.elem_bytes = 4;
        c.counts = {1, 1, 1, 1, kBytes / 4};
        c.src_strides = c.dst_strides = {0, 0, 0, 0, 4};
        Command command;
        command.body = c;
        l.append(std::move(command));
      }
    }
  });
  l.append(ScalarOp::kHalt, 0, 0, 0, 0);
  insert_semaphores(l, kSemaphores);
  const std::vector<std::byte> image = encode_image(l, {.slots = 2});
  const std::vector<int> cores = {0};
  const auto cycles = TimedGang(std::span(image).subspan(sizeof(tpu_program_image_header_t)), cores,
                                board, GangMode::kAll)
                          .run(most_commands);
  return cycles.value_or(0);
}

// With bytes on their way over the back edge, too, iterations that repeat are not walked through.
TEST(LoopFences, TheEstimateSkipsIterationsThatRepeat) {
  const uint64_t few = streamed_cycles(100, UINT64_MAX);
  const uint64_t period = streamed_cycles(101, UINT64_MAX) - few;
  EXPECT_GT(period, 0u);
  EXPECT_EQ(streamed_cycles(100000, 1000), few + 99900 * period);
}

}  // namespace
}  // namespace tpu::compiler
