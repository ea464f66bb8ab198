// Random commands over a few memories: with any number of threads, jobs in the order of their bytes
// leave what one command after the other leaves, and the kernel thread finds this when it looks in
// between. Nothing in the jobs is atomic, so that the thread sanitizer sees an order that is
// missing.
#include "kernel/data_order.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "kernel/job_pool.hpp"

namespace tpu::model {
namespace {

constexpr size_t kMemories = 3;
constexpr uint64_t kBytes = 512;
constexpr size_t kJobs = 24;  // used by turns, so that commands are at most so far ahead

using Memory = std::array<uint8_t, kBytes>;

struct Operand {
  size_t memory = 0;
  DataRange range;

  template <class Visit>
  void visit(const Visit& visit) const {
    for (uint64_t at = range.low; at < range.high; ++at) {
      if (range.period == 0 || (at - range.low) % range.period < range.run) {
        visit(at);
      }
    }
  }
};

struct Command {
  std::array<Operand, 2> from;
  Operand to;
  uint8_t number = 0;
  bool quick = false;
  bool strand = false;
  uint64_t parts = 1;
};

// Where the bytes of a memory lie in its order: most are told apart by their bounds, and those
// of the last memory are higher than any memory is.
DataRange placed(size_t memory, DataRange range) {
  constexpr uint64_t kApart = 80;
  const uint64_t base = memory + 1 == kMemories ? uint64_t{1} << 60 : memory << 30;
  range.low = base + range.low * kApart;
  range.high = base + range.high * kApart;
  range.period *= kApart;
  range.run *= kApart;
  return range;
}

// Each byte of the result depends on its place, on all operands and on what was there.
void execute(const Command& command, std::array<Memory, kMemories>& memories, uint64_t part,
             uint64_t parts) {
  uint32_t sum = command.number;
  for (const Operand& from : command.from) {
    from.visit([&](uint64_t at) { sum = sum * 31 + memories[from.memory][at]; });
  }
  Memory& to = memories[command.to.memory];
  command.to.visit([&](uint64_t at) {
    if (at % parts == part) {
      to[at] = static_cast<uint8_t>(to[at] * 3 + sum + at);
    }
  });
}

class CommandJob : public Job {
 public:
  void prepare(const Command& of, std::array<Memory, kMemories>& in) {
    command = of;
    memories = &in;
    parts_ = 1;
    set_parts(1);
    set_quick(of.quick);
  }
  void run_part(int part) override {
    execute(command, *memories, static_cast<uint64_t>(part), static_cast<uint64_t>(parts_));
  }
  Command command;
  std::array<Memory, kMemories>* memories = nullptr;

 protected:
  int split(int parts) override { return parts_ = parts; }

 private:
  int parts_ = 1;
};

class Commands {
 public:
  explicit Commands(uint32_t seed) : random_(seed) {}

  Command next() {
    Command command;
    command.number = static_cast<uint8_t>(random_());
    command.to = operand();
    for (Operand& from : command.from) {
      do {
        from = operand();  // parts must not read what others write
      } while (from.memory == command.to.memory && from.range.shares_bytes(command.to.range));
    }
    command.quick = below(4) == 0;
    command.strand = below(6) == 0;
    command.parts = 1 + below(4);
    return command;
  }
  uint64_t below(uint64_t end) { return random_() % end; }

 private:
  Operand operand() {
    Operand operand;
    operand.memory = below(kMemories);
    const uint64_t low = below(kBytes - 64);
    operand.range = {.low = low, .high = low + 1 + below(64)};
    if (below(3) == 0) {  // columns of a width that others have, too
      operand.range.period = below(2) == 0 ? 16 : 24;
      operand.range.run = 1 + below(operand.range.period - 1);
    }
    return operand;
  }

  std::mt19937 random_;
};

// Whether the jobs leave what the commands leave one by one. Not `reads`: their order is told what
// commands write only.
class DataOrderThreads : public ::testing::TestWithParam<int> {
 protected:
  static bool right(JobPool& pool, uint32_t seed, bool reads) {
    constexpr int kCommands = 3000;
    Commands commands(seed);
    std::array<Memory, kMemories> one_by_one{};
    std::array<Memory, kMemories> memories{};
    std::array<DataOrder, kMemories> orders;
    std::vector<CommandJob> jobs(kJobs);
    JobStrand strand;
    const JobsExpected expected(pool);
    DataUses uses;
    for (int i = 0; i < kCommands; ++i) {
      const Command command = commands.next();
      execute(command, one_by_one, 0, 1);
      CommandJob& job = jobs[static_cast<size_t>(i) % kJobs];
      pool.join(job);
      pool.cut(job, command.parts);
      job.prepare(command, memories);
      for (const Operand& from : command.from) {
        if (reads) {
          uses.add(orders[from.memory], placed(from.memory, from.range), false);
        }
      }
      uses.add(orders[command.to.memory], placed(command.to.memory, command.to.range), true);
      if (command.strand) {
        uses.launch(pool, strand, job);
      } else {
        uses.launch(pool, job);
      }
      if (commands.below(16) == 0) {  // the kernel thread looks, and writes
        const size_t memory = commands.below(kMemories);
        const uint64_t at = commands.below(kBytes);
        const DataRange look = placed(memory, {.low = at, .high = at + 1});
        orders[memory].wait(look.low, look.high, true);
        if (memories[memory][at] != one_by_one[memory][at]) {
          break;
        }
        memories[memory][at] = one_by_one[memory][at] = static_cast<uint8_t>(i);
      }
    }
    pool.drain();
    return memories == one_by_one;
  }
};

TEST_P(DataOrderThreads, RandomCommandsLeaveWhatTheyLeaveOneByOne) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    JobPool pool(GetParam());
    EXPECT_TRUE(right(pool, seed, true)) << "seed " << seed;
  }
}

// Jobs of a late pool show each order that is missing, without a sanitizer.
TEST_P(DataOrderThreads, LateJobsShowAnOrderThatIsMissing) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    JobPool pool(GetParam(), JobTime::kLate);
    EXPECT_TRUE(right(pool, seed, true)) << "seed " << seed;
    EXPECT_FALSE(right(pool, seed, false)) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, DataOrderThreads, ::testing::Values(1, 2, 3, 8, 16));

TEST(DataRange, ColumnsOfAnArrayShareNoBytes) {
  const DataRange left{.low = 1000, .high = 1900, .period = 100, .run = 40};
  const DataRange right{.low = 1040, .high = 2000, .period = 100, .run = 60};
  const DataRange both{.low = 1039, .high = 2000, .period = 100, .run = 2};
  const DataRange other{.low = 1040, .high = 2000, .period = 50, .run = 10};
  EXPECT_FALSE(left.shares_bytes(right));
  EXPECT_FALSE(right.shares_bytes(left));
  EXPECT_TRUE(left.shares_bytes(both));
  EXPECT_TRUE(both.shares_bytes(right));
  EXPECT_TRUE(left.shares_bytes(other)) << "not looked at closely";
  EXPECT_TRUE(left.shares_bytes({.low = 1050, .high = 1051})) << "likewise";
  EXPECT_FALSE(left.shares_bytes({.low = 900, .high = 1000}));
  EXPECT_TRUE(left.holds(left));
  EXPECT_FALSE(left.holds({.low = 1000, .high = 1040}));
  EXPECT_TRUE((DataRange{.low = 1000, .high = 2000}.holds(left)));
}

TEST(DataRange, FollowsThePattern) {
  spec::StridePattern rows(4096, 8);
  rows.add(16, 8);  // 128 bytes in a row
  rows.add(10, 1024);
  rows.add(2, 10 * 1024);
  const DataRange range = data_range(rows);
  EXPECT_EQ(range.low, 4096u);
  EXPECT_EQ(range.high, 4096u + 19 * 1024 + 128);
  EXPECT_EQ(range.period, 1024u);
  EXPECT_EQ(range.run, 128u);
  spec::StridePattern odd(0, 8);
  odd.add(4, 100);
  odd.add(3, 1050);
  EXPECT_EQ(data_range(odd).period, 0u) << "no columns";
  spec::StridePattern dense(64, 4);
  dense.add(32, 4);
  EXPECT_EQ(data_range(dense).period, 0u);
  EXPECT_EQ(data_range(dense).high, 64u + 128);
}

}  // namespace
}  // namespace tpu::model
