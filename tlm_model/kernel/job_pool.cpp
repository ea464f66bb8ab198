// Thread pool with strands. One mutex guards all lists: a job is microseconds to milliseconds of
// work, so the lock is cold; parts run outside of it.
#include "kernel/job_pool.hpp"

#include "arith/flush_mode.hpp"
#include "kernel/host_profile.hpp"

namespace tpu::model {

JobPool::JobPool(int threads) : threads_(threads < 1 ? 1 : threads) {
  for (int i = 1; i < threads_; ++i) {
    workers_.emplace_back([this] { worker(); });
  }
}

JobPool::~JobPool() {
  {
    const std::lock_guard lock(mutex_);
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
  if (threads_ == 1) {
    const spec::ScopedFlushMode flush;
    const HostTimer timer(HostWork::kJoinWork);
    for (int part = 0; part < job.parts_; ++part) {
      job.run_part(part);
    }
    return;
  }
  const std::lock_guard lock(mutex_);
  job.strand_ = &strand;
  job.in_flight_ = true;
  if (strand.tail_ != nullptr) {
    strand.tail_->next_ = &job;
    strand.tail_ = &job;
    return;
  }
  strand.head_ = strand.tail_ = &job;
  push_ready(job);
}

void JobPool::join(Job& job) {
  if (threads_ == 1) {
    return;
  }
  std::unique_lock lock(mutex_);
  while (job.in_flight_) {
    int part = 0;
    if (Job* work = claim(&job, &part); work != nullptr) {
      const spec::ScopedFlushMode flush;
      const HostTimer timer(HostWork::kJoinWork);
      run_claimed(lock, *work, part);
    } else {
      const HostTimer timer(HostWork::kJoinWait);
      done_cv_.wait(lock);
    }
  }
  if (job.error_) {
    std::rethrow_exception(job.error_);
  }
}

void JobPool::worker() {
  const spec::ScopedFlushMode flush;  // once a thread
  std::unique_lock lock(mutex_);
  for (;;) {
    int part = 0;
    if (Job* work = claim(nullptr, &part); work != nullptr) {
      run_claimed(lock, *work, part);
    } else if (stop_) {
      return;
    } else {
      work_cv_.wait(lock);
    }
  }
}

void JobPool::push_ready(Job& job) {
  job.next_ready_ = nullptr;
  (ready_tail_ != nullptr ? ready_tail_->next_ready_ : ready_head_) = &job;
  ready_tail_ = &job;
  if (job.parts_ > 1) {
    work_cv_.notify_all();
  } else {
    work_cv_.notify_one();
  }
  done_cv_.notify_one();  // the joining thread helps
}

Job* JobPool::claim(Job* preferred, int* part) {
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
    return nullptr;
  }
  *part = job->claimed_++;
  if (job->claimed_ == job->parts_) {  // no part left: leaves the list
    (previous != nullptr ? previous->next_ready_ : ready_head_) = job->next_ready_;
    if (ready_tail_ == job) {
      ready_tail_ = previous;
    }
  }
  return job;
}

void JobPool::run_claimed(std::unique_lock<std::mutex>& lock, Job& job, int part) {
  lock.unlock();
  std::exception_ptr error;
  try {
    job.run_part(part);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (error && !job.error_) {
    job.error_ = error;
  }
  if (++job.finished_ == job.parts_) {
    finish(job);
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
  done_cv_.notify_one();
}

}  // namespace tpu::model
