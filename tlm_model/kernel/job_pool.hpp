// Host threads that do the data work of engine commands. A job is launched when its command starts
// in simulated time, behind the jobs that it has to follow (kernel/data_order.hpp finds them), and
// joined when somebody needs its result. A job may be cut into parts that run side by side, and
// jobs that are less work together may be run so by one thread. What a job computes never depends
// on the number of threads. No SystemC here. Job and Strand are owned by the caller and reused;
// nothing allocates after start-up.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "kernel/job_trace.hpp"
#include "kernel/thread_forecast.hpp"
#include "kernel/work_pace.hpp"
#include "sync/mutex.hpp"

namespace tpu::model {

class JobPool;
class JobStrand;
class Job;

// A launch of a job, which may have been launched again since.
struct JobRef {
  Job* job = nullptr;
  uint64_t launch = 0;
  uint64_t traced = 0;  // number in the trace; 0: there was none

  bool done() const;
  // Returns when it is done, and rethrows what it threw if it is the latest launch and nobody got
  // this.
  void join() const;
};

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

  // Whether the latest launch is done. Its results are there then.
  bool done() const { return done_.load(std::memory_order_acquire) == launches_; }
  JobRef latest() { return {this, launches_, traced_}; }
  // Throws what the latest launch threw, once it is done: to the first who asks.
  void rethrow() {
    if (error_) {
      std::rethrow_exception(std::exchange(error_, nullptr));
    }
  }

 protected:
  // Cuts the work into `parts` parts or fewer, and returns how many. From any thread, when the job
  // is about to run and is worth more than one part; the pool's lock is held. If it throws, the job
  // is not run, and whoever joins it gets the error.
  virtual int split(int /*parts*/) { return parts_; }
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
  friend struct JobRef;
  // An unfinished predecessor that can run, or this job: a thread that joins this job runs that one
  // first. With the pool's lock held.
  Job* front();

  JobPool* pool_ = nullptr;
  JobStrand* strand_ = nullptr;
  std::vector<Job*> followers_;  // that wait for this one, each once for each of its reasons
  std::vector<JobRef> before_;   // that this one waited for at its launch
  uint32_t waits_for_ = 0;       // of these
  // Neighbours in the pool's list of jobs with unclaimed parts.
  Job* next_ready_ = nullptr;
  Job* previous_ready_ = nullptr;
  bool is_ready_ = false;  // in this list
  int parts_ = 1;
  uint64_t group_ = 0;
  bool quick_ = false;
  uint32_t most_parts_ = 1;
  WorkPace* pace_ = nullptr;  // that its parts show; null: of none
  uint64_t amount_ = 0;       // of all parts
  uint64_t traced_ = 0;       // number in the trace
  int claimed_ = 0;
  int finished_ = 0;
  uint64_t launches_ = 0;           // of the kernel thread
  std::atomic<uint64_t> done_ = 0;  // of these; changed with the lock held
  bool uncut_ = false;              // split() failed: the job is not run
  std::exception_ptr error_;
};

inline bool JobRef::done() const { return job->done_.load(std::memory_order_acquire) >= launch; }

// Jobs that run in order, whatever else they follow.
class JobStrand {
 private:
  friend class JobPool;
  Job* last_ = nullptr;  // null: done
  uint64_t traced_ = 0;  // the latest in the trace
};

// When jobs are run. kLate: not until somebody joins them or what follows them, which of several
// that can run takes the latest, all in the joining thread. For tests: an order that nobody asked
// for is always missing then.
enum class JobTime : uint8_t { kSoon, kLate };

class JobPool {
 public:
  // `threads` counts the calling thread too, which helps while it joins; 1 runs every job inside
  // launch(). What a job throws comes out of join() all the same.
  // Late jobs are cut for `threads`, at least two.
  explicit JobPool(int threads, JobTime time = JobTime::kSoon);
  ~JobPool();
  JobPool(const JobPool&) = delete;
  JobPool& operator=(const JobPool&) = delete;

  // Queues the job behind others. It must not be in flight. A quick one whose predecessors are done
  // is done here.
  void launch(Job& job, std::span<const JobRef> after) { launch_behind(nullptr, job, after); }
  // Likewise, also behind the others of its strand.
  void launch(JobStrand& strand, Job& job, std::span<const JobRef> after = {}) {
    launch_behind(&strand, job, after);
  }
  // Returns when the job is done, and rethrows what it threw unless somebody got this already.
  // Returns at once for a job that is not in flight.
  void join(Job& job);
  // Likewise, but what it threw stays with it.
  void wait(Job& job);
  // Returns when no job is in flight. What they threw stays with them.
  void drain();

  int threads() const { return threads_; }
  // Parts that so much work of a kind is worth, by the pace at which jobs of the kind were done.
  uint64_t worth(JobKind kind, uint64_t amount) const {
    return paces_[static_cast<size_t>(kind)].parts(amount);
  }
  // Parts for a job that is worth cutting into `most`: as many, if there are so many threads; one
  // while each thread has another job, since parts of a matmul pack the same rhs. For a job that is
  // launched next. Counts as of now; split() gets the number as of when the job can run.
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
  // Who launches a job names those before it that are done, too: with other threads they would not
  // be.
  bool traces() const { return trace_ != nullptr; }
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
    return parts_for(job);
  }
  int parts_for(const Job& job) const {
    const bool busy = active_.load(std::memory_order_relaxed) >= threads_;
    return busy ? 1 : std::min(static_cast<int>(job.most_parts_), threads_);
  }
  void launch_behind(JobStrand* strand, Job& job, std::span<const JobRef> after);
  void run_here(Job& job);
  void help_until(Job* job) TPU_REQUIRES(mutex_);
  bool is_over(const Job* job) const TPU_REQUIRES(mutex_) {
    return job != nullptr ? job->done() : jobs_ == 0;
  }
  uint64_t run(const Claim& claim) const;
  void trace_launch(JobStrand* strand, Job& job, std::span<const JobRef> after);
  void trace_join(const Job& job);
  void trace_return();
  void worker();
  // Gives the lock up meanwhile.
  bool spin(const Job* job) TPU_REQUIRES(mutex_);
  void make_ready(Job& job, int takers) TPU_REQUIRES(mutex_);
  void wake(int takers) TPU_REQUIRES(mutex_);
  void wake_others() TPU_REQUIRES(mutex_);
  Claim claim(Job* preferred) TPU_REQUIRES(mutex_);
  void remove_ready(Job& job) TPU_REQUIRES(mutex_);
  void take_along(Claim& claim) TPU_REQUIRES(mutex_);
  // Gives the lock up while it runs.
  void run_claimed(const Claim& claim) TPU_REQUIRES(mutex_);
  void finish(Job& job) TPU_REQUIRES(mutex_);

  const bool late_;
  const int threads_;
  const bool spins_;  // each thread has a core of the host
  std::atomic<bool> expecting_ = false;
  std::atomic<int> active_ = 0;  // jobs that run or can run; changed with the lock held
  base::Mutex mutex_;            // guards what jobs and strands say of their order, too
  base::CondVar work_cv_;
  base::CondVar done_cv_;
  int jobs_ TPU_GUARDED_BY(mutex_) = 0;         // in flight
  int awake_ TPU_GUARDED_BY(mutex_) = 0;        // threads that spin
  int asleep_ TPU_GUARDED_BY(mutex_) = 0;       // threads that sleep
  int woken_ TPU_GUARDED_BY(mutex_) = 0;        // of these, threads that are on their way
  int ready_parts_ TPU_GUARDED_BY(mutex_) = 0;  // unclaimed
  bool joiner_asleep_ TPU_GUARDED_BY(mutex_) = false;
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
