// What the kernel thread handed to the job pool and waited for, in order and with the processor
// time of each piece, which other work on the host makes no longer: what `--profile` computes the
// steps of other thread counts from. Keeps the latest calls and forgets those before. All calls are
// serialised by the pool.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tpu::model {

// Processor time of this thread, and what it takes to read it: up to a microsecond.
uint64_t thread_nanoseconds();
uint64_t thread_clock_nanoseconds();

// A call of the kernel thread.
struct JobCall {
  uint64_t before_ns = 0;  // the kernel thread's own work since its last call: events
  uint64_t job = 0;        // number in the trace
  bool join = false;       // else launch
};

struct TracedJob {
  static constexpr size_t kMostBefore = 12;

  uint64_t work_ns = 0;     // of all parts
  uint32_t most_parts = 1;  // that a pool of any size would cut it into
  uint32_t before_count = 0;
  std::array<uint64_t, kMostBefore> before{};  // jobs that it follows
};

class JobTrace {
 public:
  // Calls that are kept: two steps of examples/mnist_convnet, 34 MiB.
  static constexpr size_t kCalls = size_t{1} << 18;

  // All memory is taken here: page faults would be in the times. `reading_ns`: of the clock, which
  // is taken off.
  explicit JobTrace(size_t calls = kCalls, uint64_t reading_ns = 0)
      : reading_ns_(reading_ns), calls_(calls), jobs_(calls) {}

  // Number of the job, for the calls below. `now_ns`: the kernel thread's thread_nanoseconds().
  uint64_t launch(uint64_t now_ns, uint32_t most_parts);
  // The job, which was just launched, follows an earlier one. Of very many, some are forgotten.
  void follow(uint64_t job, uint64_t before);
  void join(uint64_t now_ns, uint64_t job);
  // Waits for nothing: the job was done already. Its time is the next call's.
  void join_done(uint64_t job) { add(resumed_ns_, job, true); }
  // The kernel thread comes back from a call: what it did since was not its own work.
  void resume(uint64_t now_ns) { resumed_ns_ = now_ns; }
  // A part has been run, by any thread.
  void add_work(uint64_t job, uint64_t nanoseconds);

  size_t size() const { return static_cast<size_t>(next_call_ - first_call_); }
  // The kept ones from 0 on, the earliest first.
  const JobCall& call(size_t index) const { return calls_[(first_call_ + index) % calls_.size()]; }
  // Null when its launch is forgotten, or for a job that was never launched.
  const TracedJob* job(uint64_t number) const;

 private:
  void add(uint64_t now_ns, uint64_t job, bool join);

  const uint64_t reading_ns_;
  uint64_t resumed_ns_ = 0;
  // Rings, by number modulo size. A job comes with a call: as many are enough. Numbers of jobs
  // begin with 1, so that 0 is none.
  uint64_t first_call_ = 0;
  uint64_t next_call_ = 0;
  uint64_t first_job_ = 1;
  uint64_t next_job_ = 1;
  std::vector<JobCall> calls_;
  std::vector<TracedJob> jobs_;
};

}  // namespace tpu::model
