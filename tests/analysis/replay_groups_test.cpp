// Cores that do the same are replayed as one: cycles are those of the traced replay, which has each
// core by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "analysis/core_groups.hpp"
#include "analysis/replay.hpp"
#include "analysis/retime.hpp"
#include "board/board_loader.hpp"

namespace tpu::driver {
namespace {

constexpr uint32_t kCores = 8;
constexpr uint8_t kLoaded = 1, kMet = 2;
using To = std::array<uint16_t, kCores>;
constexpr To kPartner = {1, 0, 3, 2, 5, 4, 7, 6};  // on the chip
constexpr To kAcross = {2, 5, 0, 7, 6, 1, 4, 3};   // one link, each of the links once
constexpr To kFirst = {0, 0, 0, 0, 0, 0, 0, 0};    // all to one
constexpr To kRound = {1, 2, 3, 4, 5, 6, 7, 0};    // some over links, some not
constexpr To kOneWay = {2, 3, 0, 1, 6, 7, 4, 5};   // two over each link of a ring, none over others

TEST(CoreGroups, CoresJoinWhereTheirChipsAreAlike) {
  CoreGroups groups(8);
  const auto chip = [](uint32_t core) { return core / 2; };
  EXPECT_TRUE(groups.split_up());
  // 1 is like the others, but its neighbour is not.
  const auto like = [](uint32_t a, uint32_t b) { return a != 0 && b != 0; };
  EXPECT_TRUE(groups.join(like, chip));
  EXPECT_EQ(groups.firsts(), (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(groups.first_of(7), 2u);
  EXPECT_EQ(groups.size_of(2), 6u);
  EXPECT_FALSE(groups.join(like, chip));
  EXPECT_TRUE(groups.join([](uint32_t, uint32_t) { return true; }, chip));
  EXPECT_TRUE(groups.one());
  groups.split();
  EXPECT_EQ(groups, CoreGroups(8));
}

// A step of eight cores, written down as a program; its times are what the traced replay gives.
class ReplayGroups : public ::testing::Test {
 protected:
  ReplayGroups() {
    record_.program = "p";
    record_.board = spec::board_texts(board_);
    for (uint32_t i = 0; i < kCores; ++i) {
      record_.cores.push_back({.core = i, .begin = 100});
    }
  }

  spec::RecordedCore& core(uint32_t i) { return record_.cores[i]; }
  void item(uint32_t i, const spec::SequencerItem& item) {
    const uint64_t before = core(i).items.empty() ? core(i).begin : core(i).items.back().went;
    core(i).items.push_back(item);
    core(i).items.back().arrived = core(i).items.back().went = before + 4;
  }
  spec::RecordedCommand& add(uint32_t i, spec::Queue queue, spec::Opcode opcode) {
    item(i, {.index = static_cast<uint32_t>(core(i).commands.size())});
    const uint64_t at = core(i).items.back().went;
    core(i).commands.push_back({.issued = at,
                                .start = at,
                                .free_at = at + 1,
                                .done = at + 1,
                                .op_id = static_cast<uint32_t>(core(i).commands.size() % 3),
                                .queue = static_cast<uint8_t>(queue),
                                .opcode = static_cast<uint8_t>(opcode)});
    return core(i).commands.back();
  }
  void take(uint32_t i, uint8_t semaphore) {
    item(i, {.index = semaphore, .amount = 1, .kind = spec::SequencerItem::Kind::kTake});
  }
  // A copy from HBM, and what works on it.
  void work(uint32_t i, uint64_t bytes, uint64_t cycles) {
    spec::RecordedCommand& copy = add(i, spec::Queue::kDmaIn, spec::Opcode::kDma);
    copy.bytes = bytes;
    copy.from = spec::RecordedMemory::kHbm;
    copy.to = spec::RecordedMemory::kVmem;
    copy.from_core = copy.to_core = static_cast<uint16_t>(i);
    copy.signal[0] = {.amount = 1, .core = static_cast<uint16_t>(i), .semaphore = kLoaded};
    spec::RecordedCommand& mxu = add(i, spec::Queue::kMxu0, spec::Opcode::kMatmul);
    mxu.free_at = mxu.start + cycles;
    mxu.done = mxu.free_at + 30;
    mxu.wait[0] = {.amount = 1, .core = static_cast<uint16_t>(i), .semaphore = kLoaded, .takes = 1};
  }
  void send(uint32_t i, uint16_t to, uint64_t bytes, spec::RecordedMemory memory) {
    spec::RecordedCommand& copy = add(i, spec::Queue::kDmaRemote, spec::Opcode::kDma);
    copy.bytes = bytes;
    copy.from = copy.to = memory;
    copy.from_core = static_cast<uint16_t>(i);
    copy.to_core = to;
    copy.signal[0] = {.amount = 1, .core = to, .semaphore = kMet};
  }
  void exchange(const To& to, uint64_t bytes, spec::RecordedMemory memory) {
    for (uint32_t i = 0; i < kCores; ++i) {
      send(i, to[i], bytes, memory);
    }
    for (uint32_t i = 0; i < kCores; ++i) {
      for (int64_t n = std::ranges::count(to, static_cast<uint16_t>(i)); n > 0; --n) {
        take(i, kMet);
      }
    }
  }
  void work_all(uint32_t count, uint64_t bytes, uint64_t cycles) {
    for (uint32_t i = 0; i < kCores; ++i) {
      for (uint32_t k = 0; k < count; ++k) {
        work(i, bytes, cycles);
      }
    }
  }
  void halt() {
    for (uint32_t i = 0; i < kCores; ++i) {
      item(i, {.kind = spec::SequencerItem::Kind::kHalt});
    }
  }

  struct Seen {
    uint64_t progress_of_one = 0, progress_of_few = 0;  // with all cores as one, as up to three
    uint64_t progress = 0;
  };
  // The ends of all cores are those of the traced replay.
  Seen compare(const CostChange& change) const {
    const StepTiming whole = retime(record_, change);
    const ReplayProgram program(record_);
    Replay<false> replay(program, change);
    Seen seen;
    replay.run([&](const Replay<false>& at) {
      const size_t groups = at.groups().firsts().size();
      seen.progress_of_one += groups == 1 ? at.progress() - seen.progress : 0;
      seen.progress_of_few += groups <= 3 ? at.progress() - seen.progress : 0;
      seen.progress = at.progress();
      return false;
    });
    EXPECT_EQ(replay.stuck(), whole.stuck);
    for (size_t i = 0; i < kCores; ++i) {
      EXPECT_EQ(replay.begin(i), whole.cores[i].begin) << i;
      EXPECT_EQ(replay.end(i), whole.cores[i].end) << i;
    }
    return seen;
  }
  Seen compare() const {
    const auto with = [&](const std::function<void(CostChange&)>& apply) {
      CostChange change = no_change(record_);
      apply(change);
      return compare(change);
    };
    with([](CostChange& c) { c.board.hbm.gbps_per_chip *= 4096; });
    with([](CostChange& c) { c.board.ici.link_gbps *= 2; });
    with([](CostChange& c) { c.board.ici.hop_ns = c.board.ici.control_hop_ns = 0; });
    with([](CostChange& c) { c.board.core.queue_depth *= 2; });
    with([](CostChange& c) { c.board.dma.in_flight *= 2; });
    with([](CostChange& c) { c.mxu = 0; });
    with([](CostChange& c) { c.sequencer = 0; });
    with([](CostChange& c) {
      c.op = 1;
      c.op_factor = 0.5;
    });
    return with([](CostChange&) {});
  }

  const spec::BoardParams board_ = spec::load_board("v3_8");
  spec::StepRecord record_;
};

TEST_F(ReplayGroups, EightCoresThatExchangeEvenlyAreOne) {
  work_all(100, 70000, 900);
  for (const To& to : {kPartner, kAcross, kPartner}) {
    exchange(to, 50000, spec::RecordedMemory::kVmem);
    work_all(100, 40000, 700);
    exchange(to, 60000, spec::RecordedMemory::kHbm);
    work_all(100, 40000, 700);
  }
  halt();
  const Seen seen = compare();
  EXPECT_GT(seen.progress, 30000u);
  EXPECT_GT(seen.progress_of_one, seen.progress * 9 / 10);
}

TEST_F(ReplayGroups, CoresThatBeginTogetherAreOneUntilTheyMeetOthers) {
  for (uint32_t i = 0; i < kCores; ++i) {
    core(i).begin += i < 2 ? 37 * i : 400;
  }
  work_all(200, 70000, 200);
  exchange(kPartner, 50000, spec::RecordedMemory::kVmem);
  exchange(kAcross, 50000, spec::RecordedMemory::kVmem);
  exchange({4, 3, 6, 1, 0, 7, 2, 5}, 50000, spec::RecordedMemory::kVmem);
  work_all(200, 30000, 200);
  halt();
  const Seen seen = compare();
  EXPECT_EQ(seen.progress_of_one, 0u);
  EXPECT_GT(seen.progress_of_few, seen.progress * 4 / 10);
}

// As the distance to the command in front is, which depends on when that has started.
TEST_F(ReplayGroups, CoresOfWhichAFewCommandsAreOthersAreOneBetweenThem) {
  for (uint32_t k = 0; k < 5; ++k) {
    work_all(100, 70000, 900);
    for (uint32_t i = 0; i < kCores; ++i) {
      work(i, 70000, 900);
      spec::RecordedCommand& last = core(i).commands.back();
      const uint64_t front = core(i).commands[core(i).commands.size() - 3].start;
      last.held = i == 5 && k % 2 == 0 ? front + 1 : 0;
      last.done += i == 3 && k == 1 ? 100 : 0;
    }
    work_all(100, 70000, 900);
  }
  halt();
  const Seen seen = compare();
  EXPECT_GT(seen.progress_of_one, seen.progress * 4 / 10);
  EXPECT_LT(seen.progress_of_one, seen.progress);
}

TEST_F(ReplayGroups, CoresThatExchangeUnevenlyAreReplayedOneByOne) {
  for (const To& to : {kRound, kOneWay}) {
    work_all(50, 70000, 900);
    exchange(to, 50000, spec::RecordedMemory::kHbm);
    work_all(50, 50000, 100);
  }
  halt();
  EXPECT_GT(compare().progress_of_one, 0u);
}

TEST_F(ReplayGroups, ACoreOfAnotherProgramIsNotOneOfThem) {
  work_all(100, 70000, 900);
  work(5, 100, 10);
  work_all(100, 70000, 900);
  halt();
  EXPECT_EQ(compare().progress_of_one, 0u);
}

TEST_F(ReplayGroups, ASignalThatIsMissingStopsThemAll) {
  work_all(100, 70000, 900);
  for (uint32_t i = 0; i < kCores; ++i) {
    take(i, kMet);
  }
  halt();
  compare(no_change(record_));
}

TEST_F(ReplayGroups, AnyProgramsAreWhatEachCoreByItselfIs) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](uint32_t end) { return static_cast<uint32_t>(random() % end); };
    for (spec::RecordedCore& each : record_.cores) {
      each.commands.clear();
      each.items.clear();
      each.begin = 100 + 50 * below(2);
    }
    const std::array<To, 5> ways = {kPartner, kAcross, kFirst, kRound, kOneWay};
    for (uint32_t i = 0; i < 12; ++i) {
      work_all(1 + below(40), 1000 * (1 + below(90)), 100 * (1 + below(9)));
      // Mostly even: some meet while others are under way.
      const To& first = ways[below(10) == 0 ? below(5) : below(2)];
      const To& second = ways[below(2)];
      const auto memory = below(2) == 0 ? spec::RecordedMemory::kHbm : spec::RecordedMemory::kVmem;
      for (uint32_t k = 0; k < kCores; ++k) {
        send(k, first[k], 777 * (1 + below(3)), memory);
        send(k, second[k], 99999, memory);
        work(k, 5000, 70);
      }
      for (uint32_t k = 0; k < kCores; ++k) {
        const auto me = static_cast<uint16_t>(k);
        for (int64_t n = std::ranges::count(first, me) + std::ranges::count(second, me); n > 0;
             --n) {
          take(k, kMet);
        }
      }
    }
    halt();
    compare();
  }
}

}  // namespace
}  // namespace tpu::driver
