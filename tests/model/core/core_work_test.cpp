// Data work of the core without SystemC: strided copies, fills and transposes against plain loops,
// in any number of parts and over HBM pages; the thread pool's order and errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/strided_box.hpp"
#include "hbm/hbm_store.hpp"
#include "kernel/job_pool.hpp"

namespace tpu::model {
namespace {

struct RandomBox {
  uint32_t elem;
  std::array<uint32_t, 5> counts;
  std::array<int64_t, 5> src, dst;
  int64_t src_base, dst_base;  // so that all offsets are inside
};

RandomBox random_box(std::mt19937& random) {
  RandomBox b;
  b.elem = 1u << random() % 4;
  int64_t src_step = b.elem;
  int64_t dst_step = b.elem;
  b.src_base = b.dst_base = 0;
  for (size_t i = 5; i-- > 0;) {
    b.counts[i] = random() % 3 == 0 ? 1u : static_cast<uint32_t>(random() % 5 + 1);
    b.src[i] = src_step + (random() % 3 == 0 ? static_cast<int64_t>(random() % 9) * b.elem : 0);
    b.dst[i] = dst_step + (random() % 3 == 0 ? static_cast<int64_t>(random() % 9) * b.elem : 0);
    src_step = b.src[i] * b.counts[i];
    dst_step = b.dst[i] * b.counts[i];
    if (random() % 4 == 0) {  // backwards
      b.dst_base += (b.counts[i] - 1) * b.dst[i];
      b.dst[i] = -b.dst[i];
    }
    if (random() % 6 == 0) {
      b.src[i] = 0;  // broadcast
    }
  }
  return b;
}

template <typename Body>
void for_each_element(const RandomBox& b, Body body) {
  std::array<uint32_t, 5> i{};
  for (i[0] = 0; i[0] < b.counts[0]; ++i[0])
    for (i[1] = 0; i[1] < b.counts[1]; ++i[1])
      for (i[2] = 0; i[2] < b.counts[2]; ++i[2])
        for (i[3] = 0; i[3] < b.counts[3]; ++i[3])
          for (i[4] = 0; i[4] < b.counts[4]; ++i[4]) {
            int64_t src = b.src_base, dst = b.dst_base;
            for (size_t k = 0; k < 5; ++k) {
              src += i[k] * b.src[k];
              dst += i[k] * b.dst[k];
            }
            body(src, dst);
          }
}

// The HBM side starts shortly before a page border, so that runs and elements cross it.
TEST(StridedBox, CopiesAndFillsAsPlainLoopsDo) {
  constexpr size_t kBytes = 1 << 18;
  constexpr uint64_t kHbmBase = kHbmPageBytes - 37;
  std::mt19937 random(7);
  PagePool pool;
  for (int round = 0; round < 300; ++round) {
    const RandomBox b = random_box(random);
    std::vector<uint8_t> src(kBytes), expected(kBytes, 0xee);
    for (uint8_t& v : src) {
      v = static_cast<uint8_t>(random());
    }
    const bool is_fill = round % 5 == 0;
    const uint64_t pattern = is_fill && round % 10 == 0 ? 0 : 0x8877665544332211u;
    for_each_element(b, [&](int64_t from, int64_t to) {
      for (uint32_t i = 0; i < b.elem; ++i) {
        expected[static_cast<size_t>(to) + i] =
            is_fill ? static_cast<uint8_t>(pattern >> (8 * i)) : src[static_cast<size_t>(from) + i];
      }
    });
    const StridedBox box = spec::normalise_box(b.elem, b.counts, is_fill ? nullptr : &b.src, b.dst);
    const int parts = static_cast<int>(random() % 3 + 1);
    std::vector<uint8_t> got(kBytes, 0xee);
    MemoryView from{.flat = src.data() + b.src_base};
    MemoryView to{.flat = got.data() + b.dst_base};
    HbmStore store(pool, 8 * kHbmPageBytes);
    PageSet pages;
    const bool paged = round % 2 == 0;
    if (paged) {
      store.write(kHbmBase, got);
      const uint64_t base = kHbmBase + static_cast<uint64_t>(b.dst_base);
      const ByteExtent extent = box_extent(box, BoxSide::kDst);
      pages.open(base + static_cast<uint64_t>(extent.low),
                 base + static_cast<uint64_t>(extent.high) - 1);
      for_each_range(box, BoxSide::kDst, kHbmPageBytes,
                     [&](int64_t offset, uint64_t bytes, bool whole) {
                       store.pin(pages, base + static_cast<uint64_t>(offset), bytes, true, whole);
                     });
      to = {.pages = &pages, .base = base};
    }
    for (int part = 0; part < parts; ++part) {
      is_fill ? fill_box(box, pattern, to, part, parts) : copy_box(box, from, to, part, parts);
    }
    if (paged) {
      store.unpin(pages);
      store.read(kHbmBase, got);
    }
    ASSERT_EQ(got, expected) << "round " << round;
  }
}

// Copies that are large enough to go around the caches, at any alignment and across pages.
TEST(StridedBox, LargeCopiesIntoHbm) {
  constexpr uint32_t kRows = 150, kRun = 2999;
  constexpr int64_t kSrcPitch = kRun + 5, kDstPitch = kRun + 100;
  constexpr uint64_t kBytes = kRows * kDstPitch;
  std::mt19937 random(9);
  std::vector<uint8_t> src(kRows * kSrcPitch);
  for (uint8_t& v : src) {
    v = static_cast<uint8_t>(random());
  }
  const std::array<int64_t, 5> src_strides = {0, 0, 0, kSrcPitch, 1};
  const StridedBox box =
      spec::normalise_box(1, {1, 1, 1, kRows, kRun}, &src_strides, {0, 0, 0, kDstPitch, 1});
  std::vector<uint8_t> expected(kBytes, 0x5a);
  for (size_t row = 0; row < kRows; ++row) {
    std::copy_n(src.begin() + static_cast<int64_t>(row) * kSrcPitch, kRun,
                expected.begin() + static_cast<int64_t>(row) * kDstPitch);
  }
  PagePool pool;
  for (const uint64_t base : {0UL, 1UL, 37UL, 60001UL}) {
    HbmStore store(pool, 16 * kHbmPageBytes);
    std::vector<uint8_t> got(kBytes, 0x5a);
    store.write(base, got);
    PageSet pages;
    pages.open(base, base + kBytes - 1);
    store.pin(pages, base, kBytes, true, false);
    for (int part = 0; part < 2; ++part) {
      copy_box(box, {.flat = src.data()}, {.pages = &pages, .base = base}, part, 2);
    }
    store.unpin(pages);
    store.read(base, got);
    EXPECT_EQ(got, expected) << base;
  }
}

// The same between flat memories: runs that follow each other without a gap share cache lines.
TEST(StridedBox, LargeCopiesBetweenFlatMemories) {
  std::mt19937 random(10);
  for (const auto& [rows, run, gap] : {std::array<uint32_t, 3>{400, 352, 0},
                                       {300, 512, 512},
                                       {200, 999, 0},
                                       {200, 999, 1},
                                       {5, 40000, 16},
                                       {1, 70001, 0}}) {
    const int64_t src_pitch = int64_t{run} + 24;
    const int64_t dst_pitch = int64_t{run} + gap;
    std::vector<uint8_t> src(static_cast<size_t>(rows * src_pitch) + 64);
    for (uint8_t& v : src) {
      v = static_cast<uint8_t>(random());
    }
    const std::array<int64_t, 5> src_strides = {0, 0, 0, src_pitch, 1};
    const StridedBox box =
        spec::normalise_box(1, {1, 1, 1, rows, run}, &src_strides, {0, 0, 0, dst_pitch, 1});
    for (const size_t offset : {0u, 1u, 16u, 40u}) {
      const bool reused = offset == 40u;
      const size_t bytes = static_cast<size_t>(rows * dst_pitch) + 128;
      std::vector<uint8_t> got(bytes, 0x5a), expected(bytes, 0x5a);
      for (int64_t row = 0; row < rows; ++row) {
        std::copy_n(src.begin() + row * src_pitch, run,
                    expected.begin() + static_cast<int64_t>(offset) + row * dst_pitch);
      }
      for (int part = 0; part < 3; ++part) {
        copy_box(box, {.flat = src.data()}, {.flat = got.data() + offset, .reused = reused}, part,
                 3);
      }
      EXPECT_EQ(got, expected) << run << " " << gap << " " << offset;
    }
  }
}

TEST(StridedBox, MergesDenseLoopsAndCountsGranules) {
  const std::array<int64_t, 5> dense = {0, 0, 4096, 64, 4};
  const StridedBox box = spec::normalise_box(4, {1, 1, 8, 64, 16}, &dense, dense);
  EXPECT_EQ(box.levels, 0);
  EXPECT_EQ(box.run_bytes, 8u * 4096);
  EXPECT_EQ(box_granule_bytes(box, BoxSide::kSrc, 512), 8u * 4096);
  const std::array<int64_t, 5> gaps = {0, 0, 0, 1000, 4};
  const StridedBox rows = spec::normalise_box(4, {1, 1, 1, 10, 20}, &gaps, {0, 0, 0, 80, 4});
  EXPECT_EQ(rows.run_bytes, 80u);
  EXPECT_EQ(box_granule_bytes(rows, BoxSide::kSrc, 512), 10u * 512);
  EXPECT_EQ(box_granule_bytes(rows, BoxSide::kDst, 512), 1024u);
}

TEST(StridedBox, TransposeInParts) {
  for (const uint32_t elem : {1u, 2u, 4u, 8u}) {
    const TransposeShape s{.elem_bytes = elem,
                           .batch = 2,
                           .rows = 37,
                           .cols = 53,
                           .src_pitch = 60 * elem,
                           .dst_pitch = 40 * elem,
                           .src_batch = 37 * 60 * elem,
                           .dst_batch = 53 * 40 * elem};
    std::vector<uint8_t> src(2 * 37 * 60 * elem), dst(2 * 53 * 40 * elem, 0);
    std::mt19937 random(elem);
    for (uint8_t& v : src) {
      v = static_cast<uint8_t>(random());
    }
    for (int part = 0; part < 3; ++part) {
      transpose_box(s, src.data(), dst.data(), part, 3);
    }
    for (size_t b = 0; b < 2; ++b)
      for (size_t r = 0; r < 37; ++r)
        for (size_t c = 0; c < 53; ++c)
          for (size_t i = 0; i < elem; ++i) {
            ASSERT_EQ(dst[((b * 53 + c) * 40 + r) * elem + i],
                      src[((b * 37 + r) * 60 + c) * elem + i]);
          }
  }
}

// Large enough to go around the caches, at aligned and other places.
template <typename T>
void check_large_transpose(uint32_t rows, uint32_t cols, uint32_t offset) {
  const uint32_t line = 64 / sizeof(T);
  const uint32_t pitch = (rows + line - 1) / line * line;
  const TransposeShape s{.elem_bytes = sizeof(T),
                         .batch = 1,
                         .rows = rows,
                         .cols = cols,
                         .src_pitch = static_cast<int64_t>(sizeof(T) * (cols + 3)),
                         .dst_pitch = static_cast<int64_t>(sizeof(T) * pitch),
                         .src_batch = 0,
                         .dst_batch = 0};
  std::vector<T> src(size_t{rows} * (cols + 3));
  std::iota(src.begin(), src.end(), T{1});
  std::vector<T> memory(size_t{cols} * pitch + 2 * line, 0);
  const size_t past_line = reinterpret_cast<uintptr_t>(memory.data()) % 64;
  T* const dst = memory.data() + (64 - past_line) / sizeof(T) + offset;
  for (int part = 0; part < 3; ++part) {
    transpose_box(s, reinterpret_cast<const uint8_t*>(src.data()), reinterpret_cast<uint8_t*>(dst),
                  part, 3);
  }
  for (size_t c = 0; c < cols; ++c) {
    for (size_t r = 0; r < pitch; ++r) {
      ASSERT_EQ(dst[c * pitch + r], r < rows ? src[r * (cols + 3) + c] : 0)
          << sizeof(T) << ' ' << r << ' ' << c;
    }
  }
}

TEST(StridedBox, LargeTransposes) {
  for (const auto& [rows, cols, offset] :
       {std::array<uint32_t, 3>{400, 88, 0}, {399, 90, 0}, {400, 88, 4}, {25, 1500, 0}}) {
    check_large_transpose<uint32_t>(rows, cols, offset);
    check_large_transpose<uint16_t>(2 * rows, cols, offset);
  }
}

class CountingJob : public Job {
 public:
  explicit CountingJob(bool quick = false) {
    set_parts(4);
    set_quick(quick);
  }
  void run_part(int part) override {
    order->fetch_add(1);
    seen_at[static_cast<size_t>(part)] = order->load();
    if (fail && part == 2) {
      throw std::runtime_error("part 2");
    }
  }
  std::atomic<int>* order = nullptr;
  std::array<int, 4> seen_at{};
  bool fail = false;
};

TEST(JobPool, RunsAStrandInOrderAndReportsErrors) {
  for (const int threads : {1, 2, 4}) {
    JobPool pool(threads);
    const JobsExpected expected(pool);
    for (int round = 0; round < 200; ++round) {
      std::atomic<int> order = 0;
      std::array<CountingJob, 8> jobs;
      JobStrand strand;
      for (CountingJob& job : jobs) {
        job.order = &order;
        pool.launch(strand, job);
      }
      for (CountingJob& job : jobs) {
        pool.join(job);
      }
      for (size_t i = 1; i < jobs.size(); ++i) {
        EXPECT_GT(*std::ranges::min_element(jobs[i].seen_at),
                  *std::ranges::max_element(jobs[i - 1].seen_at) - 1);
      }
      EXPECT_EQ(order.load(), 32);
    }
    std::atomic<int> order = 0;
    JobStrand strand;
    CountingJob bad;
    bad.order = &order;
    bad.fail = true;
    pool.launch(strand, bad);
    EXPECT_THROW(pool.join(bad), std::runtime_error);
  }
}

// Whether a job stands until it is let go.
class HeldJob : public Job {
 public:
  void run_part(int /*part*/) override {
    runs = true;
    go.wait(false);
  }
  std::atomic<bool> runs = false;
  std::atomic<bool> go = false;
};

TEST(JobPool, CutsNoJobWhileEachThreadHasOne) {
  JobPool pool(2);
  std::array<JobStrand, 2> strands;
  std::array<HeldJob, 2> held;
  CountingJob job;
  for (size_t i = 0; i < held.size(); ++i) {
    EXPECT_EQ(pool.cut(job, 4), 2);
    pool.launch(strands[i], held[i]);
  }
  EXPECT_EQ(pool.cut(job, 4), 1);
  for (HeldJob& each : held) {
    each.go = true;
    each.go.notify_all();
  }
  for (HeldJob& each : held) {
    pool.join(each);
  }
  EXPECT_EQ(pool.cut(job, 4), 2);
}

TEST(WorkPace, PartsHaveWorkForAWhile) {
  constexpr uint64_t kTime = WorkPace::kPartNanoseconds;
  WorkPace pace(1'000'000);
  EXPECT_EQ(pace.parts(0), 1u);
  EXPECT_EQ(pace.parts(1'999'999), 1u);
  EXPECT_EQ(pace.parts(2'000'000), 2u);
  for (int i = 0; i < 1000; ++i) {
    pace.add(8'000'000, 2 * kTime);
  }
  EXPECT_EQ(pace.parts(8'000'000), 2u) << "four times as fast as thought";
  EXPECT_EQ(pace.parts(7'900'000), 1u);
  pace.add(4'000'000, 1000 * kTime);
  EXPECT_EQ(pace.parts(7'800'000), 2u) << "one part that was interrupted";
  for (int i = 0; i < 1000; ++i) {
    pace.add(1, 1);  // says nothing
    pace.add(1000, kTime / 10);
  }
  EXPECT_EQ(pace.parts(7'800'000), 2u);
  for (int i = 0; i < 1000; ++i) {
    pace.add(2'000'000, kTime / 10);  // short and quick all the same
  }
  EXPECT_EQ(pace.parts(30'000'000), 1u);
  for (int i = 0; i < 1000; ++i) {
    pace.add(1, 1000 * kTime);
  }
  EXPECT_EQ(pace.parts(3), 3u);
}

// One that is slow for its amount of work.
class SlowJob : public Job {
 public:
  void run_part(int /*part*/) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

TEST(JobPool, CutsByThePaceOfEarlierJobsOfAKind) {
  JobPool pool(2);
  JobStrand strand;
  SlowJob job;
  constexpr uint64_t kAmount = 999'999;  // a bit less than two parts of what the pool begins with
  constexpr uint64_t kMost = 8;
  EXPECT_EQ(pool.cut(job, JobKind::kVector, kAmount, kMost), 1);
  EXPECT_EQ(pool.cut(job, JobKind::kVector, 2 * kAmount, kMost), 2);
  EXPECT_EQ(pool.cut(job, JobKind::kVector, 2 * kAmount, 1), 1);
  EXPECT_EQ(pool.cut(job, kMost), 2);
  pool.launch(strand, job);  // of no kind
  pool.join(job);
  EXPECT_EQ(pool.cut(job, JobKind::kVector, kAmount, kMost), 1);
  pool.launch(strand, job);
  pool.join(job);
  EXPECT_EQ(pool.cut(job, JobKind::kVector, kAmount, kMost), 2);
}

TEST(JobPool, DoesQuickJobsAtOnceButBehindTheirStrand) {
  JobPool pool(2);
  std::atomic<int> order = 0;
  JobStrand held_up;
  JobStrand empty;
  HeldJob held;
  CountingJob behind(true);
  CountingJob alone(true);
  behind.order = alone.order = &order;
  alone.fail = true;
  pool.launch(held_up, held);
  pool.launch(held_up, behind);
  pool.launch(empty, alone);
  EXPECT_EQ(order.load(), 3) << "three parts of the one, until it fails";
  EXPECT_THROW(pool.join(alone), std::runtime_error);
  held.go = true;
  held.go.notify_all();
  pool.join(behind);
  EXPECT_EQ(order.load(), 7);
  pool.join(held);
}

// Says with how many others it was run.
class LikeJob : public Job {
 public:
  LikeJob() { set_group(1); }
  LikeJob(uint64_t group, int of_kind, int parts = 1) : kind(of_kind) {
    set_group(group);
    set_parts(parts);
  }
  void run_part(int /*part*/) override { together = 1; }
  void run_together(std::span<Job* const> jobs) override {
    for (Job* job : jobs) {
      static_cast<LikeJob*>(job)->together = jobs.size();
    }
    if (fail) {
      throw std::runtime_error("all of them");
    }
  }
  bool like(const Job& other) const override {
    return kind == static_cast<const LikeJob&>(other).kind;
  }
  int kind = 0;
  bool fail = false;
  size_t together = 0;
};

// Two threads, one of which is held up.
struct JobsTogether : ::testing::Test {
  JobsTogether() { pool.launch(held_up, held); }
  ~JobsTogether() override {
    held.go = true;
    held.go.notify_all();
    pool.join(held);
  }
  void launch(std::span<LikeJob* const> jobs) {
    while (!held.runs) {
      std::this_thread::yield();
    }
    for (LikeJob* job : jobs) {
      pool.launch(strands[next++], *job);
    }
  }

  JobPool pool{2};
  JobStrand held_up;
  HeldJob held;
  std::array<JobStrand, 32> strands;
  size_t next = 0;
};

TEST_F(JobsTogether, JobsThatAreAlikeAreRunAtOnce) {
  LikeJob first(1, 5), other_group(2, 5), second(1, 5), other_kind(1, 6), third(1, 5), cut(1, 5, 2);
  launch(std::array{&other_kind, &first, &other_group, &second, &cut, &third});
  pool.join(second);
  EXPECT_EQ(first.together, 3u);
  EXPECT_EQ(second.together, 3u);
  EXPECT_EQ(third.together, 3u);
  EXPECT_EQ(other_kind.together + other_group.together + cut.together, 0u);
  for (LikeJob* job : {&other_kind, &other_group, &cut, &first, &third}) {
    pool.join(*job);
    EXPECT_EQ(job->together, job == &first || job == &third ? 3u : 1u);
  }
}

TEST_F(JobsTogether, JobsBehindOthersOfTheirStrandWait) {
  LikeJob first, second, behind;
  launch(std::array{&first, &second});
  pool.launch(strands[1], behind);
  pool.join(first);
  EXPECT_EQ(first.together, 2u);
  EXPECT_EQ(behind.together, 0u);
  pool.join(behind);
  EXPECT_EQ(behind.together, 1u);
}

TEST_F(JobsTogether, NoMoreThanSixteen) {
  std::array<LikeJob, 20> jobs;
  std::array<LikeJob*, 20> pointers;
  for (size_t i = 0; i < jobs.size(); ++i) {
    pointers[i] = &jobs[i];
  }
  launch(pointers);
  pool.join(jobs[19]);
  EXPECT_EQ(jobs[19].together, 16u);
  EXPECT_EQ(jobs[14].together, 16u);
  EXPECT_EQ(jobs[15].together, 0u);
  pool.join(jobs[18]);
  EXPECT_EQ(jobs[15].together, 4u);
  for (LikeJob& job : jobs) {
    pool.join(job);
  }
}

TEST_F(JobsTogether, WhatIsThrownIsThrownForEach) {
  LikeJob first, second;
  first.fail = true;
  launch(std::array{&first, &second});
  EXPECT_THROW(pool.join(first), std::runtime_error);
  EXPECT_THROW(pool.join(second), std::runtime_error);
}

}  // namespace
}  // namespace tpu::model
