// Thread pool with strands. One mutex guards all lists: a job is microseconds to milliseconds of
// work, so the lock is cold; parts run outside of it.
#include "kernel/job_pool.hpp"

#include <algorithm>
#include <chrono>

#include "arith/flush_mode.hpp"
#include "kernel/host_profile.hpp"
#include "sync/pause.hpp"

namespace tpu::model {

void Job::run_together(std::span<Job* const> jobs) {
  for (Job* job : jobs) {
    job->run_part(0);
  }
}

Job* Job::front() {
  Job* job = this;
  while (job->waits_for_ != 0) {
    job = std::find_if(job->before_.rbegin(), job->before_.rend(), [](const JobRef& before) {
            return !before.done();
          })->job;
  }
  return job;
}

JobPool::JobPool(int threads, JobTime time)
    : late_(time == JobTime::kLate),
      threads_(std::max(threads, late_ ? 2 : 1)),
      spins_(!late_ && threads_ <= static_cast<int>(std::thread::hardware_concurrency())),
      // About what hosts with AVX-512 do in a part's time.
      paces_{WorkPace(2'000'000), WorkPace(500'000), WorkPace(256 << 10), WorkPace(128 << 10)} {
  for (int i = 1; i < threads_ && !late_; ++i) {
    workers_.emplace_back([this] { worker(); });
  }
}

JobPool::~JobPool() {
  {
    const base::MutexLock lock(mutex_);
    stop_ = true;
  }
  work_cv_.notify_all();
  for (std::thread& thread : workers_) {
    thread.join();
  }
}

void JobRef::join() const {
  const bool told = traced != 0 && launch == job->launches_;  // that of an earlier one is
  if (!done() || told) {
    job->pool_->join(*job);
  }
}

void JobPool::launch_behind(JobStrand* strand, Job& job, std::span<const JobRef> after) {
  job.pool_ = this;
  job.claimed_ = 0;
  job.finished_ = 0;
  job.uncut_ = false;
  job.error_ = nullptr;
  ++job.launches_;
  if (threads_ == 1) {
    trace_launch(strand, job, after);
    run_here(job);
    return;
  }
  {
    const HostTimer timer(HostWork::kLaunch);
    const base::MutexLock lock(mutex_);
    trace_launch(strand, job, after);
    job.waits_for_ = 0;
    job.before_.clear();
    const auto follow = [&job](Job& before) {
      job.before_.push_back(before.latest());
      before.followers_.push_back(&job);
      ++job.waits_for_;
    };
    for (const JobRef& before : after) {
      if (!before.done()) {
        follow(*before.job);
      }
    }
    if (strand != nullptr && strand->last_ != nullptr) {
      follow(*strand->last_);
    }
    if (!job.quick_ || job.waits_for_ != 0 || late_) {
      job.strand_ = strand;
      if (strand != nullptr) {
        strand->last_ = &job;
      }
      ++jobs_;
      if (job.waits_for_ == 0) {
        make_ready(job, 0);
      }
      return;
    }
  }
  run_here(job);
}

void JobPool::run_here(Job& job) {
  {
    const spec::ScopedFlushMode flush;
    const HostTimer timer(HostWork::kJoinWork);
    try {
      for (int part = 0; part < job.parts_; ++part) {
        const uint64_t took = run({job, part});
        if (trace_) {
          trace_->add_work(job.traced_, took);
        }
      }
    } catch (...) {
      job.error_ = std::current_exception();
    }
  }
  job.done_.store(job.launches_, std::memory_order_release);
  trace_return();
}

void JobPool::join(Job& job) {
  wait(job);
  job.rethrow();
}

void JobPool::wait(Job& job) {
  if (!job.done() || trace_) {
    const base::MutexLock lock(mutex_);
    trace_join(job);
    if (!job.done()) {
      help_until(&job);
      trace_return();
    }
  }
}

void JobPool::drain() {
  const base::MutexLock lock(mutex_);
  help_until(nullptr);
}

// Until the job is done; null: until all are.
void JobPool::help_until(Job* job) {
  while (!is_over(job)) {
    Job* const last = late_ ? ready_tail_ : nullptr;
    if (const Claim work = claim(job != nullptr ? job->front() : last)) {
      const spec::ScopedFlushMode flush;
      const HostTimer timer(HostWork::kJoinWork);
      run_claimed(work);
    } else {
      const HostTimer timer(HostWork::kJoinWait);
      if (!spin(job)) {
        joiner_asleep_ = true;
        while (!is_over(job) && ready_head_ == nullptr) {
          done_cv_.wait(mutex_);
        }
        joiner_asleep_ = false;
      }
    }
  }
  wake(0);
}

// Processor time of the claim, if anybody asks.
uint64_t JobPool::run(const Claim& claim) const {
  using Clock = std::chrono::steady_clock;
  Job& job = claim.job();
  const bool measured = job.pace_ != nullptr && !job.quick_ && threads_ > 1;
  const Clock::time_point start = measured ? Clock::now() : Clock::time_point();
  const uint64_t begin = trace_ ? thread_nanoseconds() : 0;
  if (claim.jobs().size() > 1) {
    job.run_together(claim.jobs());
  } else {
    job.run_part(claim.part());
  }
  const uint64_t took = trace_ ? thread_nanoseconds() - begin : 0;
  if (measured) {
    const std::chrono::nanoseconds time = Clock::now() - start;
    uint64_t amount = 0;
    for (const Job* each : claim.jobs()) {
      amount += each->amount_ / static_cast<uint64_t>(each->parts_);
    }
    job.pace_->add(amount, static_cast<uint64_t>(time.count()));
  }
  return took;
}

void JobPool::keep_trace() {
  trace_ = std::make_unique<JobTrace>(JobTrace::kCalls, thread_clock_nanoseconds());
}

void JobPool::trace_launch(JobStrand* strand, Job& job, std::span<const JobRef> after) {
  if (!trace_) {
    return;
  }
  const auto most = std::max(job.most_parts_, static_cast<uint32_t>(job.parts_));
  job.traced_ = trace_->launch(thread_nanoseconds(), most);
  if (strand != nullptr) {
    trace_->follow(job.traced_, strand->traced_);
    strand->traced_ = job.traced_;
  }
  for (const JobRef& before : after) {
    trace_->follow(job.traced_, before.traced);
  }
}

void JobPool::trace_join(const Job& job) {
  if (trace_ && !job.done()) {
    trace_->join(thread_nanoseconds(), job.traced_);
  } else if (trace_) {
    trace_->join_done(job.traced_);
  }
}

void JobPool::trace_return() {
  if (trace_) {
    trace_->resume(thread_nanoseconds());
  }
}

std::vector<ThreadForecast> JobPool::forecast(std::span<const int> threads) {
  const base::MutexLock lock(mutex_);
  std::vector<ThreadForecast> result;
  for (size_t i = 0; trace_ && i < threads.size(); ++i) {
    result.push_back(forecast_threads(*trace_, threads[i]));
  }
  return result;
}

void JobPool::worker() {
  const spec::ScopedFlushMode flush;  // once a thread
  const base::MutexLock lock(mutex_);
  for (;;) {
    if (const Claim work = claim(nullptr)) {
      wake_others();
      run_claimed(work);
    } else if (stop_) {
      return;
    } else if (!spin(nullptr)) {
      ++asleep_;
      work_cv_.wait(mutex_);
      --asleep_;
      woken_ -= woken_ > 0 ? 1 : 0;
    }
  }
}

// Looks for work, or for the end of `job`, for about as long as a sleeping thread takes to wake up:
// commands of small steps come quicker than that. False if there was none.
bool JobPool::spin(const Job* job) {
  constexpr int kAwake = 4;  // of hundreds, as some hosts have, all would run to each job
  if (!spins_ || awake_ == kAwake) {
    return false;
  }
  ++awake_;
  constexpr std::chrono::microseconds kWakeUp{50};
  constexpr int kLooks = 32;  // between two looks at the clock
  bool found = false;
  {
    const base::MutexUnlock open(mutex_);
    const auto end = std::chrono::steady_clock::now() + kWakeUp;
    do {
      for (int look = 0; look < kLooks && !found; ++look) {
        found = ready_head_.load(std::memory_order_relaxed) != nullptr ||
                stop_.load(std::memory_order_relaxed) || (job != nullptr && job->done());
        base::pause_processor();
      }
    } while (!found && expecting_.load(std::memory_order_relaxed) &&
             std::chrono::steady_clock::now() < end);
  }
  --awake_;
  return found || ready_head_ != nullptr || stop_;
}

// The job waits for no other one any more. `takers`: callers that claim a part next.
void JobPool::make_ready(Job& job, int takers) {
  if (job.most_parts_ > 1) {
    if (const int parts = parts_for(job); parts > 1) {
      try {
        job.parts_ = job.split(parts);
      } catch (...) {
        job.error_ = std::current_exception();
        job.uncut_ = true;
        job.parts_ = 1;
      }
    }
  }
  ++active_;
  job.next_ready_ = nullptr;
  job.previous_ready_ = ready_tail_;
  job.is_ready_ = true;
  if (ready_tail_ != nullptr) {
    ready_tail_->next_ready_ = &job;
  } else {
    ready_head_ = &job;
  }
  ready_tail_ = &job;
  ready_parts_ += job.parts_;
  wake(takers);
}

// As many threads as there are parts that nobody is about to take: those that spin see them. To
// wake one takes microseconds, so the kernel thread wakes one at most, which wakes others.
void JobPool::wake(int takers) {
  int wanted = ready_parts_ - takers - awake_ - woken_;
  if (wanted > 0 && joiner_asleep_) {
    done_cv_.notify_one();  // the joining thread helps
    --wanted;
  }
  if (takers == 0 && awake_ + woken_ > 0) {
    return;
  }
  for (; wanted > 0 && asleep_ > woken_; wanted = takers == 0 ? 0 : wanted - 1) {
    ++woken_;
    work_cv_.notify_one();
  }
}

// A thread has claimed work: others take the rest, and one looks for what comes next.
void JobPool::wake_others() {
  const int wanted = ready_parts_ - awake_ - woken_;
  const bool looks = spins_ && awake_ + woken_ == 0 && expecting_.load(std::memory_order_relaxed);
  if ((wanted > 0 || looks) && asleep_ > woken_) {
    ++woken_;
    work_cv_.notify_one();
  }
}

JobPool::Claim JobPool::claim(Job* preferred) {
  Job* const job = preferred != nullptr && preferred->is_ready_ ? preferred : ready_head_.load();
  if (job == nullptr) {
    return {};
  }
  Claim claim(*job, job->claimed_++);
  --ready_parts_;
  if (job->claimed_ == job->parts_) {  // no part left
    remove_ready(*job);
  }
  if (job->group_ != 0 && job->parts_ == 1 && !job->uncut_ && !late_) {
    take_along(claim);
  }
  return claim;
}

void JobPool::remove_ready(Job& job) {
  if (job.previous_ready_ != nullptr) {
    job.previous_ready_->next_ready_ = job.next_ready_;
  } else {
    ready_head_ = job.next_ready_;
  }
  if (job.next_ready_ != nullptr) {
    job.next_ready_->previous_ready_ = job.previous_ready_;
  } else {
    ready_tail_ = job.previous_ready_;
  }
  job.is_ready_ = false;
}

// Adds jobs that are less work together with the claimed one, but leaves their part to threads that
// would have nothing else to do.
void JobPool::take_along(Claim& claim) {
  const auto fits = [&claim](const Job& other) {
    return other.group_ == claim.job().group_ && other.parts_ == 1 && !other.uncut_ &&
           claim.job().like(other);
  };
  constexpr int kLook = 64;  // jobs, with the lock held
  int alike = 1;
  int others = 0;
  for (const Job* walk = ready_head_; walk != nullptr && alike + others < kLook;
       walk = walk->next_ready_) {
    ++(fits(*walk) ? alike : others);
  }
  const int idle = std::max(threads_ - 1 - running_ - others, 0);
  const auto most = static_cast<size_t>((alike + idle) / (1 + idle));
  for (Job* walk = ready_head_;
       walk != nullptr && claim.jobs().size() < std::min(most, kMostTogether);
       walk = walk->next_ready_) {
    if (!fits(*walk)) {
      continue;
    }
    ++walk->claimed_;
    --ready_parts_;
    remove_ready(*walk);
    claim.add(*walk);
  }
}

void JobPool::run_claimed(const Claim& claim) {
  ++running_;
  std::exception_ptr error;
  uint64_t took = 0;
  if (!claim.job().uncut_) {
    const base::MutexUnlock open(mutex_);
    try {
      took = run(claim);
    } catch (...) {
      error = std::current_exception();
    }
  }
  --running_;
  for (Job* job : claim.jobs()) {
    if (trace_) {
      trace_->add_work(job->traced_, took / claim.jobs().size());
    }
    if (error && !job->error_) {
      job->error_ = error;
    }
    if (++job->finished_ == job->parts_) {
      finish(*job);
    }
  }
}

void JobPool::finish(Job& job) {
  if (job.strand_ != nullptr && job.strand_->last_ == &job) {
    job.strand_->last_ = nullptr;
  }
  --jobs_;
  --active_;
  for (Job* const follower : job.followers_) {
    if (--follower->waits_for_ == 0) {
      make_ready(*follower, 1);
    }
  }
  job.followers_.clear();
  job.done_.store(job.launches_, std::memory_order_release);
  if (joiner_asleep_) {
    done_cv_.notify_one();
  }
}

}  // namespace tpu::model
