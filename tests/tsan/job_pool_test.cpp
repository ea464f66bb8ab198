// The job pool hands memory from thread to thread: jobs of a strand see what those before them
// wrote, whoever joins sees all of it. Nothing in the jobs is atomic, so that the thread sanitizer
// sees an order that is missing.
#include "kernel/job_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <numeric>
#include <stdexcept>
#include <thread>

namespace tpu::model {
namespace {

constexpr int kParts = 4;

// Adds one to its part of the strand's row; the next job of the strand reads all parts.
class RowJob : public Job {
 public:
  RowJob() { set_parts(kParts); }
  void make_quick() { set_quick(true); }
  void run_part(int part) override {
    seen[static_cast<size_t>(part)] = std::accumulate(before->begin(), before->end(), 0);
    (*after)[static_cast<size_t>(part)] = (*before)[static_cast<size_t>(part)] + 1;
    if (fails && part == 1) {
      throw std::runtime_error("part 1");
    }
  }
  std::array<int, kParts>* before = nullptr;
  std::array<int, kParts>* after = nullptr;
  std::array<int, kParts> seen{};
  bool fails = false;
};

TEST(JobPoolThreads, StrandsHandTheirMemoryOn) {
  constexpr size_t kStrands = 6, kJobs = 12;
  JobPool pool(static_cast<int>(std::max(2U, std::thread::hardware_concurrency())));
  const JobsExpected expected(pool);
  for (int round = 0; round < 40; ++round) {
    std::array<JobStrand, kStrands> strands;
    std::array<std::array<std::array<int, kParts>, kJobs + 1>, kStrands> rows{};
    std::array<std::array<RowJob, kJobs>, kStrands> jobs;
    for (size_t j = 0; j < kJobs; ++j) {
      for (size_t s = 0; s < kStrands; ++s) {
        jobs[s][j].before = &rows[s][j];
        jobs[s][j].after = &rows[s][j + 1];
        if ((s + j + static_cast<size_t>(round)) % 3 == 0) {
          jobs[s][j].make_quick();
        }
        pool.launch(strands[s], jobs[s][j]);
      }
    }
    for (size_t s = kStrands; s-- > 0;) {
      pool.join(jobs[s][kJobs - 1]);
      for (size_t j = 0; j < kJobs; ++j) {
        EXPECT_EQ(jobs[s][j].seen[2], static_cast<int>(j) * kParts);
        pool.join(jobs[s][j]);  // is over; returns at once
      }
    }
  }
}

TEST(JobPoolThreads, JobsAreUsedAgainAfterTheirJoin) {
  JobPool pool(3);  // more threads than some hosts have cores: nobody spins there
  JobStrand strand;
  RowJob job;
  std::array<std::array<int, kParts>, 2> rows{};
  for (int i = 0; i < 300; ++i) {
    job.before = &rows[static_cast<size_t>(i % 2)];
    job.after = &rows[static_cast<size_t>((i + 1) % 2)];
    job.fails = i % 7 == 3;
    pool.launch(strand, job);
    if (job.fails) {
      EXPECT_THROW(pool.join(job), std::runtime_error);
    } else {
      pool.join(job);
    }
    EXPECT_EQ((*job.after)[3], i + 1);
  }
}

class UncutJob : public RowJob {
 protected:
  int split(int /*parts*/) override { throw std::bad_alloc(); }
};

// A worker cuts it, when the job before it is done.
TEST(JobPoolThreads, AJobThatCannotBeCutFailsWhoeverJoinsIt) {
  JobPool pool(3);
  std::array<std::array<int, kParts>, 4> rows{};
  for (int i = 0; i < 100; ++i) {
    JobStrand strand;
    RowJob before;
    UncutJob uncut;
    RowJob after;
    size_t row = 0;
    for (RowJob* job : {&before, static_cast<RowJob*>(&uncut), &after}) {
      job->before = &rows[row++];
      job->after = &rows[row];
    }
    pool.cut(uncut, kParts);
    pool.launch(strand, before);
    pool.launch(strand, uncut);
    pool.launch(strand, after);
    EXPECT_THROW(pool.join(uncut), std::bad_alloc);
    EXPECT_NO_THROW(pool.join(uncut)) << "told once";
    EXPECT_NO_THROW(pool.join(after));
    EXPECT_EQ(uncut.seen, (std::array<int, kParts>{})) << "not run";
  }
}

// Adds one to its row, or each of several to its own.
class AlikeJob : public Job {
 public:
  AlikeJob() { set_group(1); }
  bool like(const Job& /*other*/) const override { return true; }
  void run_part(int /*part*/) override { ++*row; }
  void run_together(std::span<Job* const> jobs) override {
    for (Job* job : jobs) {
      ++*static_cast<AlikeJob*>(job)->row;
    }
  }
  int* row = nullptr;
};

// Each part waits until all have begun: a thread that sleeps on shows as parts that never meet.
class MeetingJob : public Job {
 public:
  explicit MeetingJob(int parts) : parts_(parts) { set_parts(parts); }
  void run_part(int /*part*/) override {
    ++begun_;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (begun_ < parts_ && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    met_ += begun_ >= parts_ ? 1 : 0;
    if (std::this_thread::get_id() != owner_) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));  // who joins falls asleep
    }
  }
  int met() const { return met_; }

 private:
  const int parts_;
  const std::thread::id owner_ = std::this_thread::get_id();
  std::atomic<int> begun_ = 0;
  std::atomic<int> met_ = 0;
};

// The pauses let threads fall asleep, awake, or on the way; the last job's end wakes the one who
// joins, its successor in the strand the workers.
TEST(JobPoolThreads, WorkWakesThreadsThatSleep) {
  constexpr int kThreads = 3;
  JobPool pool(kThreads);
  JobStrand strand;
  for (int i = 0; i < 150; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(i % 5 * 30));
    MeetingJob first(kThreads);
    MeetingJob second(kThreads);
    MeetingJob third(kThreads - 1);  // workers alone
    JobStrand other;
    pool.launch(strand, first);
    pool.launch(strand, second);
    pool.join(second);
    EXPECT_EQ(first.met() + second.met(), 2 * kThreads);
    pool.launch(other, third);
    for (int waits = 0; third.met() < kThreads - 1 && waits < 60'000; ++waits) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(third.met(), kThreads - 1);
    pool.join(third);
  }
}

TEST(JobPoolThreads, JobsThatAreRunTogetherAreRunOnce) {
  constexpr size_t kStrands = 8;
  constexpr int kRounds = 200;
  JobPool pool(3);
  std::array<JobStrand, kStrands> strands;
  std::array<int, kStrands> rows{};
  std::array<std::array<AlikeJob, 2>, kStrands> jobs;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < 2; ++i) {
      for (size_t s = 0; s < kStrands; ++s) {
        jobs[s][i].row = &rows[s];
        pool.launch(strands[s], jobs[s][i]);
      }
    }
    for (size_t s = kStrands; s-- > 0;) {
      pool.join(jobs[s][1]);
      pool.join(jobs[s][0]);
      EXPECT_EQ(rows[s], 2 * (round + 1));
    }
  }
}

TEST(JobPoolThreads, PoolsEndWithNothingLeft) {
  for (int round = 0; round < 50; ++round) {
    std::array<std::array<int, kParts>, 2> rows{};
    RowJob job;
    job.before = rows.data();
    job.after = &rows[1];
    JobStrand strand;
    const auto pool = std::make_unique<JobPool>(2 + round % 3);
    pool->launch(strand, job);
    pool->join(job);
  }
}

}  // namespace
}  // namespace tpu::model
