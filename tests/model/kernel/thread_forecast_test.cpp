// Traces of the job pool, and what other numbers of threads would make of them: by hand.
#include "kernel/thread_forecast.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "kernel/data_order.hpp"
#include "kernel/job_pool.hpp"
#include "kernel/job_trace.hpp"

namespace tpu::model {
namespace {

// Calls of a kernel thread whose own work takes the given time before each; the pool takes none.
class Script {
 public:
  explicit Script(size_t calls = JobTrace::kCalls) : trace_(calls) {}

  uint64_t launch(uint64_t events, int strand, uint64_t work, uint32_t most_parts = 1) {
    now_ += events;
    const uint64_t job = trace_.launch(now_, most_parts);
    uint64_t& last = strands_[static_cast<size_t>(strand)];
    trace_.follow(job, last);
    last = job;
    trace_.add_work(job, work);
    trace_.resume(now_);
    return job;
  }
  void join(uint64_t events, uint64_t job) {
    now_ += events;
    trace_.join(now_, job);
    trace_.resume(now_);
  }
  ThreadForecast with(int threads) const { return forecast_threads(trace_, threads); }
  void follow(uint64_t job, uint64_t before) { trace_.follow(job, before); }
  const JobTrace& trace() const { return trace_; }

 private:
  JobTrace trace_;
  std::array<uint64_t, 4> strands_{};  // the latest job of each
  uint64_t now_ = 0;
};

TEST(ThreadForecast, StrandsRunSideBySide) {
  Script script;
  const uint64_t a = script.launch(0, 0, 100);
  const uint64_t b = script.launch(0, 1, 100);
  script.join(0, a);
  script.join(0, b);
  EXPECT_EQ(script.with(1).total_ns, 200U);
  EXPECT_EQ(script.with(2).total_ns, 100U);
  EXPECT_EQ(script.with(16).total_ns, 100U);
}

TEST(ThreadForecast, JobsOfAStrandRunInOrder) {
  Script script;
  const uint64_t a = script.launch(0, 0, 100);
  const uint64_t b = script.launch(0, 0, 50);
  script.join(0, a);
  script.join(0, b);
  for (const int threads : {1, 2, 8}) {
    EXPECT_EQ(script.with(threads).total_ns, 150U) << threads;
  }
}

// a and b side by side, then c, which both must precede, beside d.
TEST(ThreadForecast, AJobRunsBehindAllThatItFollows) {
  Script script;
  const uint64_t a = script.launch(0, 0, 100);
  const uint64_t b = script.launch(0, 1, 60);
  const uint64_t c = script.launch(0, 2, 30);
  script.follow(c, a);
  script.follow(c, b);
  const uint64_t d = script.launch(0, 3, 50);
  for (const uint64_t job : {a, b, c, d}) {
    script.join(0, job);
  }
  EXPECT_EQ(script.with(1).total_ns, 240U);
  EXPECT_EQ(script.with(2).total_ns, 130U);  // this thread: b, d, and waits for c
  EXPECT_EQ(script.with(2).wait_ns, 20U);
  EXPECT_EQ(script.with(16).total_ns, 130U);
}

TEST(ThreadForecast, AJobIsCutAsFarAsItIsWorth) {
  Script script;
  script.join(0, script.launch(0, 0, 400, 4));
  EXPECT_EQ(script.with(1).total_ns, 400U);
  EXPECT_EQ(script.with(2).total_ns, 200U);
  EXPECT_EQ(script.with(4).total_ns, 100U);
  EXPECT_EQ(script.with(16).total_ns, 100U);
}

TEST(ThreadForecast, AJobStaysWholeWhileEachThreadHasAnother) {
  Script script;
  const uint64_t a = script.launch(0, 0, 100);
  const uint64_t b = script.launch(0, 1, 50);
  const uint64_t c = script.launch(0, 2, 200, 4);
  for (const uint64_t job : {a, b, c}) {
    script.join(0, job);
  }
  EXPECT_EQ(script.with(2).total_ns, 250U);  // c behind b, by the same thread
  // c in three parts: this thread until 67, who had b until 117, this one again.
  EXPECT_EQ(script.with(3).total_ns, 132U);
}

TEST(ThreadForecast, EventsStayWithTheKernelThread) {
  Script script;
  std::vector<uint64_t> jobs;
  for (int i = 0; i < 4; ++i) {
    jobs.push_back(script.launch(i == 0 ? 0 : 10, i, 20));
  }
  for (const uint64_t job : jobs) {
    script.join(10, job);
  }
  const ThreadForecast one = script.with(1);
  EXPECT_EQ(one.events_ns, 70U);
  EXPECT_EQ(one.total_ns, 70U + 80U);
  const ThreadForecast many = script.with(8);
  EXPECT_EQ(many.events_ns, 70U);
  EXPECT_EQ(many.total_ns, 70U);  // all was done beside
}

TEST(ThreadForecast, TellsWaitingAndHelpThatCameTooLong) {
  Script script;
  const uint64_t a = script.launch(0, 0, 60);
  const uint64_t b = script.launch(0, 1, 100);
  script.join(10, a);  // the other thread has it, until 60; meanwhile this one takes b, until 110
  script.join(0, b);
  const ThreadForecast two = script.with(2);
  EXPECT_EQ(two.total_ns, 110U);
  EXPECT_EQ(two.late_ns, 50U);
  EXPECT_EQ(two.wait_ns, 0U);
  const ThreadForecast three = script.with(3);
  EXPECT_EQ(three.total_ns, 100U);
  EXPECT_EQ(three.late_ns, 0U);
  EXPECT_EQ(three.wait_ns, 90U);
}

TEST(ThreadForecast, WhoWaitsHelpsInFrontOfTheJob) {
  Script script;
  script.launch(0, 0, 100);  // the other thread's
  script.launch(0, 1, 100);
  script.launch(0, 2, 10);
  const uint64_t last = script.launch(0, 2, 10);
  script.join(0, last);
  EXPECT_EQ(script.with(2).total_ns, 20U);
  EXPECT_EQ(script.with(2).late_ns, 0U);
}

TEST(JobTrace, LeavesOutWhatItsClockTakes) {
  JobTrace trace(5, 5);
  trace.join_done(trace.launch(100, 1));
  const uint64_t job = trace.launch(125, 1);
  trace.add_work(job, 30);
  trace.join_done(job);
  trace.join(133, trace.launch(131, 1));
  EXPECT_EQ(trace.call(0).before_ns, 0U);  // the first join; its launch is forgotten
  EXPECT_EQ(trace.call(1).before_ns, 20U);
  EXPECT_EQ(trace.call(2).before_ns, 0U) << "nobody looked at the clock";
  EXPECT_EQ(trace.call(3).before_ns, 1U);
  EXPECT_EQ(trace.call(4).before_ns, 0U) << "no less";
  EXPECT_EQ(trace.job(job)->work_ns, 25U);
}

TEST(JobTrace, ForgetsTheEarliestCalls) {
  Script script(4);
  std::vector<uint64_t> jobs;
  for (int i = 0; i < 4; ++i) {
    jobs.push_back(script.launch(0, i, 10));
  }
  script.join(0, jobs[0]);  // its launch goes
  script.join(0, jobs[3]);
  EXPECT_EQ(script.trace().size(), 4U);
  EXPECT_EQ(script.trace().job(jobs[1]), nullptr);
  ASSERT_NE(script.trace().job(jobs[3]), nullptr);
  EXPECT_EQ(script.trace().job(jobs[3])->work_ns, 10U);
  EXPECT_EQ(script.with(1).total_ns, 10U);
}

constexpr uint64_t kPartNs = 20'000;

class SpinningJob : public Job {
 public:
  SpinningJob() { set_parts(2); }
  void run_part(int) override {
    const uint64_t begin = thread_nanoseconds();
    // The trace takes the time of a clock reading off each part; it is longer on a loaded host.
    while (thread_nanoseconds() - begin < kPartNs + kPartNs / 2) {
    }
  }
};

TEST(JobPool, TracesTheWorkOfEachJob) {
  for (const int threads : {1, 3}) {
    JobPool pool(threads);
    const std::array<int, 2> asked = {1, 4};
    EXPECT_TRUE(pool.forecast(asked).empty()) << "no trace";
    pool.keep_trace();
    std::array<SpinningJob, 8> jobs;
    std::array<JobStrand, 8> strands;
    EXPECT_EQ(pool.cut(jobs[0], 4), std::min(4, threads));
    for (size_t i = 0; i < jobs.size(); ++i) {
      pool.cut(jobs[i], 4);
      pool.launch(strands[i], jobs[i]);
    }
    for (SpinningJob& job : jobs) {
      pool.join(job);
    }
    const std::vector<ThreadForecast> forecast = pool.forecast(asked);
    ASSERT_EQ(forecast.size(), 2U);
    constexpr uint64_t kWork = 8 * 2 * kPartNs;
    EXPECT_GE(forecast[0].total_ns, kWork + forecast[0].events_ns);
    EXPECT_GE(forecast[1].total_ns, kWork / 4);
    EXPECT_LT(forecast[1].total_ns, forecast[0].total_ns);
    EXPECT_EQ(pool.forecast(asked)[1].total_ns, forecast[1].total_ns) << "of the trace alone";
  }
}

class WholeJob : public SpinningJob {
 public:
  WholeJob() { set_parts(1); }
};

// Each writes what the one before has written, which is done by then, at least with one thread.
TEST(JobPool, TracesTheOrderOfJobsThatAreDone) {
  constexpr size_t kJobs = 64;
  for (const int threads : {1, 3}) {
    JobPool pool(threads);
    pool.keep_trace();
    std::array<WholeJob, kJobs> jobs;
    std::array<DataOrder, 2> orders;
    DataUses uses;
    for (WholeJob& job : jobs) {
      uses.add(orders[0], {.low = 0, .high = 8}, false);
      uses.add(orders[1], {.low = 0, .high = 8}, true);
      uses.launch(pool, job);
      std::swap(orders[0], orders[1]);
    }
    orders[0].wait(0, 8, false);
    const std::array<int, 1> asked = {4};
    EXPECT_GE(pool.forecast(asked)[0].total_ns, kJobs * kPartNs) << threads;
    pool.drain();
  }
}

}  // namespace
}  // namespace tpu::model
