// Latest calls of the job pool.
#include "kernel/job_trace.hpp"

#include <algorithm>
#include <ctime>
#include <span>

namespace tpu::model {

uint64_t thread_nanoseconds() {
  constexpr uint64_t kSecond = 1'000'000'000;
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecond + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t thread_clock_nanoseconds() {
  constexpr uint64_t kReadings = 100;
  const uint64_t begin = thread_nanoseconds();
  uint64_t end = begin;
  for (uint64_t i = 0; i < kReadings; ++i) {
    end = thread_nanoseconds();
  }
  return (end - begin) / kReadings;
}

void JobTrace::add(uint64_t now_ns, uint64_t job, bool join) {
  if (size() == calls_.size()) {
    if (!call(0).join) {  // jobs are numbered in the order of their launches
      ++first_job_;
    }
    ++first_call_;
  }
  const uint64_t passed = next_call_ == 0 ? 0 : now_ns - resumed_ns_;  // boot is no event
  calls_[next_call_++ % calls_.size()] = {
      .before_ns = passed - std::min(passed, reading_ns_), .job = job, .join = join};
  resumed_ns_ = now_ns;
}

uint64_t JobTrace::launch(uint64_t now_ns, uint32_t most_parts) {
  const uint64_t number = next_job_;
  add(now_ns, number, false);
  jobs_[next_job_++ % jobs_.size()] = {.most_parts = most_parts};
  return number;
}

void JobTrace::follow(uint64_t job, uint64_t before) {
  TracedJob& traced = jobs_[job % jobs_.size()];
  const auto known = std::span(traced.before).first(traced.before_count);
  if (before != 0 && before < job && traced.before_count < traced.before.size() &&
      std::ranges::find(known, before) == known.end()) {
    traced.before[traced.before_count++] = before;
  }
}

void JobTrace::join(uint64_t now_ns, uint64_t job) { add(now_ns, job, true); }

void JobTrace::add_work(uint64_t job, uint64_t nanoseconds) {
  if (job >= first_job_ && job < next_job_) {
    jobs_[job % jobs_.size()].work_ns += nanoseconds - std::min(nanoseconds, reading_ns_);
  }
}

const TracedJob* JobTrace::job(uint64_t number) const {
  return number >= first_job_ && number < next_job_ ? &jobs_[number % jobs_.size()] : nullptr;
}

}  // namespace tpu::model
