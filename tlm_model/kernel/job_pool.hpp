// Host threads that do the data work of engine commands: a job is launched when its command starts
// in simulated time and joined when simulated time reaches its end. Jobs of one strand (an engine
// queue) run in order; a job may be cut into parts that run side by side, and jobs that are less
// work together may be run so by one thread. What a job computes never depends on the number of
// threads (contract: programs order themselves by semaphores). No SystemC here. Job and Strand are
// owned by the caller and reused; nothing allocates after start-up.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "kernel/job_trace.hpp"
#include "kernel/thread_forecast.hpp"
#include "kernel/work_pace.hpp"
#include "sync/mutex.hpp"

namespace tpu::model {

class JobStrand;

// Work of one kind runs at about one pace. Amounts: multiply-adds, lane operations, bytes, bytes.
enum class JobKind : uint8_t { kMatmul, kVector, kCopy, kTranspose };

// One piece of data work. run_part is called once for every part in [0, parts), from any thread,
// under FTZ|DAZ.
class Job {
 public:
  virtual ~Job() = default;
  virtual void run_part(int part) = 0;
  // All of several jobs of one part at once, this one the first: each was launched, none has begun,
  // and this one is like each of the others.
  virtual void run_together(std::span<Job* const> jobs);

 protected:
  // Whether the two are less work together. Of jobs with the same group; must not change what
  // either computes.
  virtual bool like(const Job& /*other*/) const { return false; }
  // Jobs that may be like each other have the same one; 0: none is like this.
  void set_group(uint64_t group) { group_ = group; }
  void set_parts(int parts) { parts_ = parts; }
  // Done sooner than another thread would hear of it: a few microseconds. For the next launch.
  void set_quick(bool quick) { quick_ = quick; }

 private:
  friend class JobPool;
  JobStrand* strand_ = nullptr;
  Job* next_ = nullptr;        // in the strand
  Job* next_ready_ = nullptr;  // in the pool's list of jobs with unclaimed parts
  int parts_ = 1;
  uint64_t group_ = 0;
  bool quick_ = false;
  uint32_t most_parts_ = 1;
  WorkPace* pace_ = nullptr;  // that its parts show; null: of none
  uint64_t amount_ = 0;       // of all parts
  uint64_t traced_ = 0;       // number in the trace
  int claimed_ = 0;
  int finished_ = 0;
  std::atomic<bool> in_flight_ = false;  // changed with the lock held
  std::exception_ptr error_;
};

// Order of the jobs of one engine queue.
class JobStrand {
 private:
  friend class JobPool;
  Job* head_ = nullptr;  // running or ready
  Job* tail_ = nullptr;
};

class JobPool {
 public:
  // `threads` counts the calling thread too, which helps while it joins; 1 runs every job inside
  // launch(). What a job throws comes out of join() all the same.
  explicit JobPool(int threads);
  ~JobPool();
  JobPool(const JobPool&) = delete;
  JobPool& operator=(const JobPool&) = delete;

  // Queues the job behind the others of its strand. The job must not be in flight. A quick one that
  // is the first of its strand is done here.
  void launch(JobStrand& strand, Job& job);
  // Returns when the job is done, and rethrows what it threw. Returns at once for a job that is not
  // in flight.
  void join(Job& job);

  int threads() const { return threads_; }
  // Parts that so much work of a kind is worth, by the pace at which jobs of the kind were done.
  uint64_t worth(JobKind kind, uint64_t amount) const {
    return paces_[static_cast<size_t>(kind)].parts(amount);
  }
  // Parts for a job that is worth cutting into `most`: as many, if there are so many threads; one
  // while each thread has another job, since parts of a matmul pack the same rhs. For a job that is
  // launched next, with set_parts() of no more than this.
  int cut(Job& job, uint64_t most) {
    job.pace_ = nullptr;
    return cut_into(job, most);
  }
  // Likewise of a job of so much work that can be cut into `most`: no more than it is worth. Its
  // own parts will show the pace of its kind too.
  int cut(Job& job, JobKind kind, uint64_t amount, uint64_t most) {
    job.pace_ = &paces_[static_cast<size_t>(kind)];
    job.amount_ = amount;
    return cut_into(job, std::min(most, worth(kind, amount)));
  }

  // From here on forecast() knows the latest calls; no job may be in flight. Costs about four
  // readings of the thread's clock a job.
  void keep_trace();
  // What these calls would take with as many threads each; empty without a trace. Jobs in flight
  // count as far as they are done.
  std::vector<ThreadForecast> forecast(std::span<const int> threads);

 private:
  friend class JobsExpected;
  static constexpr uint64_t kMostParts = 1024;
  static constexpr size_t kMostTogether = 16;

  // What a thread has taken on: a part of a job, or several jobs together.
  class Claim {
   public:
    Claim() = default;
    Claim(Job& job, int part) : part_(part), count_(1) { jobs_[0] = &job; }
    explicit operator bool() const { return count_ > 0; }
    Job& job() const { return *jobs_[0]; }
    int part() const { return part_; }
    std::span<Job* const> jobs() const { return {jobs_.data(), count_}; }
    void add(Job& job) { jobs_[count_++] = &job; }

   private:
    std::array<Job*, kMostTogether> jobs_{};
    int part_ = 0;
    size_t count_ = 0;
  };

  int cut_into(Job& job, uint64_t most) const {
    job.most_parts_ = static_cast<uint32_t>(std::clamp<uint64_t>(most, 1, kMostParts));
    const bool busy = jobs_.load(std::memory_order_relaxed) >= threads_;
    return busy ? 1 : std::min(static_cast<int>(job.most_parts_), threads_);
  }
  void run_here(Job& job);
  void queue(JobStrand& strand, Job& job) TPU_REQUIRES(mutex_);
  uint64_t run(const Claim& claim) const;
  uint64_t run_traced(const Claim& claim) const;
  void trace_launch(JobStrand& strand, Job& job);
  void trace_join(const Job& job);
  void trace_return();
  void worker();
  // Gives the lock up meanwhile.
  bool spin(const Job* job) TPU_REQUIRES(mutex_);
  void push_ready(Job& job) TPU_REQUIRES(mutex_);
  Claim claim(Job* preferred) TPU_REQUIRES(mutex_);
  void remove_ready(Job* previous, const Job& job) TPU_REQUIRES(mutex_);
  void take_along(Claim& claim) TPU_REQUIRES(mutex_);
  // Gives the lock up while it runs.
  void run_claimed(const Claim& claim) TPU_REQUIRES(mutex_);
  void finish(Job& job) TPU_REQUIRES(mutex_);

  const int threads_;
  const bool spins_;  // each thread has a core of the host
  std::atomic<bool> expecting_ = false;
  std::atomic<int> jobs_ = 0;  // in flight; changed with the lock held
  base::Mutex mutex_;          // guards the lists of strands and their jobs, too
  base::CondVar work_cv_;
  base::CondVar done_cv_;
  int awake_ TPU_GUARDED_BY(mutex_) = 0;    // threads that spin
  int running_ TPU_GUARDED_BY(mutex_) = 0;  // threads that run what they have claimed
  std::atomic<Job*> ready_head_ = nullptr;  // changed with the lock held
  Job* ready_tail_ TPU_GUARDED_BY(mutex_) = nullptr;
  std::atomic<bool> stop_ = false;
  std::array<WorkPace, 4> paces_;  // by kind
  std::unique_ptr<JobTrace> trace_;
  std::vector<std::thread> workers_;
};

// During the life of this, jobs may come soon: threads without work stay awake for a while.
class JobsExpected {
 public:
  explicit JobsExpected(JobPool& pool) : pool_(pool) { expect(true); }
  ~JobsExpected() { expect(false); }
  JobsExpected(const JobsExpected&) = delete;
  JobsExpected& operator=(const JobsExpected&) = delete;

 private:
  void expect(bool soon) { pool_.expecting_.store(soon, std::memory_order_relaxed); }

  JobPool& pool_;
};

}  // namespace tpu::model
