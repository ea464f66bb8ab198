// Thread pool with strands. One mutex guards all lists: a job is microseconds to milliseconds of
// work, so the lock is cold; parts run outside of it.
#include "kernel/job_pool.hpp"

#include <chrono>

#include "arith/flush_mode.hpp"
#include "kernel/host_profile.hpp"

namespace tpu::model {

void Job::run_together(std::span<Job* const> jobs) {
  for (Job* job : jobs) {
    job->run_part(0);
  }
}

JobPool::JobPool(int threads)
    : threads_(threads < 1 ? 1 : threads),
      spins_(threads_ <= static_cast<int>(std::thread::hardware_concurrency())),
      // About what hosts with AVX-512 do in a part's time.
      paces_{WorkPace(2'000'000), WorkPace(500'000), WorkPace(256 << 10), WorkPace(128 << 10)} {
  for (int i = 1; i < threads_; ++i) {
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

void JobPool::launch(JobStrand& strand, Job& job) {
  job.claimed_ = 0;
  job.finished_ = 0;
  job.error_ = nullptr;
  job.next_ = nullptr;
  if (threads_ > 1) {
    const base::MutexLock lock(mutex_);
    trace_launch(strand, job);
    if (!job.quick_ || strand.head_ != nullptr) {
      queue(strand, job);
      return;
    }
  } else {
    trace_launch(strand, job);
  }
  run_here(job);
  trace_return();
}

void JobPool::run_here(Job& job) {
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

void JobPool::queue(JobStrand& strand, Job& job) {
  job.strand_ = &strand;
  job.in_flight_ = true;
  ++jobs_;
  if (strand.tail_ != nullptr) {
    strand.tail_->next_ = &job;
    strand.tail_ = &job;
    return;
  }
  strand.head_ = strand.tail_ = &job;
  push_ready(job);
}

void JobPool::join(Job& job) {
  const base::MutexLock lock(mutex_);
  trace_join(job);
  const bool waits = job.in_flight_;
  while (job.in_flight_) {
    if (const Claim work = claim(&job)) {
      const spec::ScopedFlushMode flush;
      const HostTimer timer(HostWork::kJoinWork);
      run_claimed(work);
    } else {
      const HostTimer timer(HostWork::kJoinWait);
      if (!spin(&job)) {
        while (job.in_flight_ && ready_head_ == nullptr) {
          done_cv_.wait(mutex_);
        }
      }
    }
  }
  if (waits) {
    trace_return();
  }
  if (job.error_) {
    std::rethrow_exception(job.error_);
  }
}

// Processor time of the claim, if anybody asks.
uint64_t JobPool::run(const Claim& claim) const {
  using Clock = std::chrono::steady_clock;
  Job& job = claim.job();
  const bool measured = job.pace_ != nullptr && !job.quick_ && threads_ > 1;
  const Clock::time_point start = measured ? Clock::now() : Clock::time_point();
  const uint64_t took = run_traced(claim);
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

uint64_t JobPool::run_traced(const Claim& claim) const {
  const uint64_t begin = trace_ ? thread_nanoseconds() : 0;
  if (claim.jobs().size() > 1) {
    claim.job().run_together(claim.jobs());
  } else {
    claim.job().run_part(claim.part());
  }
  return trace_ ? thread_nanoseconds() - begin : 0;
}

void JobPool::keep_trace() {
  trace_ = std::make_unique<JobTrace>(JobTrace::kCalls, thread_clock_nanoseconds());
}

void JobPool::trace_launch(JobStrand& strand, Job& job) {
  if (trace_) {
    const auto most = std::max(job.most_parts_, static_cast<uint32_t>(job.parts_));
    job.traced_ = trace_->launch(thread_nanoseconds(), &strand, most);
  }
}

void JobPool::trace_join(const Job& job) {
  if (trace_ && job.in_flight_) {
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
      run_claimed(work);
    } else if (stop_) {
      return;
    } else if (!spin(nullptr)) {
      work_cv_.wait(mutex_);
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
                stop_.load(std::memory_order_relaxed) ||
                (job != nullptr && !job->in_flight_.load(std::memory_order_relaxed));
        __builtin_ia32_pause();
      }
    } while (!found && expecting_.load(std::memory_order_relaxed) &&
             std::chrono::steady_clock::now() < end);
  }
  --awake_;
  return found || ready_head_ != nullptr || stop_;
}

void JobPool::push_ready(Job& job) {
  job.next_ready_ = nullptr;
  if (ready_tail_ != nullptr) {
    ready_tail_->next_ready_ = &job;
  } else {
    ready_head_ = &job;
  }
  ready_tail_ = &job;
  if (job.parts_ > 1) {
    work_cv_.notify_all();
  } else {
    work_cv_.notify_one();
  }
  done_cv_.notify_one();  // the joining thread helps
}

JobPool::Claim JobPool::claim(Job* preferred) {
  Job* previous = nullptr;
  Job* job = ready_head_;
  if (preferred != nullptr) {
    for (Job* walk = ready_head_; walk != nullptr; walk = walk->next_ready_) {
      if (walk->next_ready_ == preferred) {
        previous = walk;
        job = preferred;
        break;
      }
    }
  }
  if (job == nullptr) {
    return {};
  }
  Claim claim(*job, job->claimed_++);
  if (job->claimed_ == job->parts_) {  // no part left
    remove_ready(previous, *job);
  }
  if (job->group_ != 0 && job->parts_ == 1) {
    take_along(claim);
  }
  return claim;
}

// Behind `previous`, or at the head.
void JobPool::remove_ready(Job* previous, const Job& job) {
  if (previous != nullptr) {
    previous->next_ready_ = job.next_ready_;
  } else {
    ready_head_ = job.next_ready_;
  }
  if (ready_tail_ == &job) {
    ready_tail_ = previous;
  }
}

// Adds jobs that are less work together with the claimed one, but leaves their part to threads that
// would have nothing else to do.
void JobPool::take_along(Claim& claim) {
  const auto fits = [&claim](const Job& other) {
    return other.group_ == claim.job().group_ && other.parts_ == 1 && claim.job().like(other);
  };
  int alike = 1;
  int others = 0;
  for (const Job* walk = ready_head_; walk != nullptr; walk = walk->next_ready_) {
    ++(fits(*walk) ? alike : others);
  }
  const int idle = std::max(threads_ - 1 - running_ - others, 0);
  const auto most = static_cast<size_t>((alike + idle) / (1 + idle));
  Job* previous = nullptr;
  for (Job* walk = ready_head_;
       walk != nullptr && claim.jobs().size() < std::min(most, kMostTogether);
       walk = walk->next_ready_) {
    if (!fits(*walk)) {
      previous = walk;
      continue;
    }
    ++walk->claimed_;
    remove_ready(previous, *walk);
    claim.add(*walk);
  }
}

void JobPool::run_claimed(const Claim& claim) {
  ++running_;
  std::exception_ptr error;
  uint64_t took = 0;
  {
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
  JobStrand& strand = *job.strand_;
  strand.head_ = job.next_;
  if (strand.head_ != nullptr) {
    push_ready(*strand.head_);
  } else {
    strand.tail_ = nullptr;
  }
  job.in_flight_ = false;
  --jobs_;
  done_cv_.notify_one();
}

}  // namespace tpu::model
