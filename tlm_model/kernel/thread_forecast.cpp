// The job pool played through.
#include "kernel/thread_forecast.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tpu::model {
namespace {

class PoolModel {
 public:
  PoolModel(const JobTrace& trace, int threads) : trace_(trace), idle_(threads - 1) {
    result_.threads = threads;
  }

  ThreadForecast run() {
    for (size_t i = 0; i < trace_.size(); ++i) {
      const JobCall& call = trace_.call(i);
      now_ += call.before_ns;
      result_.events_ns += call.before_ns;
      work_until(now_);
      if (!call.join) {
        launch(call.job);
      } else if (const auto found = jobs_.find(call.job); found != jobs_.end()) {
        join(call.job, found->second);
        jobs_.erase(found);
      }
    }
    result_.total_ns = now_;
    return result_;
  }

 private:
  struct Job {
    uint64_t work_ns = 0;
    uint64_t part_ns = 0;
    uint32_t most_parts = 1;
    uint32_t unclaimed = 0;
    uint32_t unfinished = 0;  // parts; of a job that cannot run yet, one
    uint32_t waits_for = 0;   // jobs
    std::vector<Job*> followers;
    uint64_t done_at = 0;
  };
  struct End {  // of a part on another thread
    uint64_t time;
    uint64_t order;
    Job* job;

    bool operator>(const End& other) const {
      return std::pair(time, order) > std::pair(other.time, other.order);
    }
  };

  void launch(uint64_t number) {
    const TracedJob& traced = *trace_.job(number);
    Job& job = jobs_[number];
    job.work_ns = traced.work_ns;
    job.most_parts = traced.most_parts;
    job.unfinished = 1;
    for (uint32_t i = 0; i < traced.before_count; ++i) {
      const auto before = jobs_.find(traced.before[i]);
      if (before != jobs_.end() && before->second.unfinished > 0) {
        before->second.followers.push_back(&job);
        ++job.waits_for;
      }
    }
    if (job.waits_for == 0) {
      make_ready(job);
      hand_out(now_);
    }
  }

  void make_ready(Job& job) {
    const auto threads = static_cast<uint32_t>(result_.threads);
    const uint32_t parts = active_++ >= threads ? 1 : std::min(job.most_parts, threads);
    job.part_ns = job.work_ns / parts;
    job.unclaimed = job.unfinished = parts;
    ready_.push_back(&job);
  }

  // The kernel thread waits for `job`, and helps.
  void join(uint64_t number, const Job& job) {
    while (job.unfinished > 0) {
      if (Job* work = claim(to_help(number)); work != nullptr) {
        const uint64_t end = now_ + work->part_ns;
        work_until(end);
        now_ = end;
        finish_part(*work, end);
        if (work != &job && job.unfinished == 0) {
          result_.late_ns += now_ - std::min(now_, job.done_at);
        }
      } else {
        const uint64_t end = ends_.top().time;
        result_.wait_ns += end - now_;
        now_ = end;
        work_until(now_);
      }
    }
  }

  // A job in front of this one that can run, or itself, as JobPool does.
  const Job* to_help(uint64_t number) const {
    const Job* job = &jobs_.at(number);
    while (job->waits_for != 0) {
      const TracedJob& traced = *trace_.job(number);
      uint32_t i = traced.before_count;
      do {
        number = traced.before[--i];
      } while (!unfinished(number));
      job = &jobs_.at(number);
    }
    return job;
  }

  bool unfinished(uint64_t number) const {
    const auto found = jobs_.find(number);
    return found != jobs_.end() && found->second.unfinished > 0;
  }

  // A part of the first ready job, of `preferred` if it is ready.
  Job* claim(const Job* preferred) {
    auto found = std::find(ready_.begin(), ready_.end(), preferred);
    if (found == ready_.end()) {
      found = ready_.begin();
    }
    if (found == ready_.end()) {
      return nullptr;
    }
    Job* job = *found;
    if (--job->unclaimed == 0) {
      ready_.erase(found);
    }
    return job;
  }

  // What the other threads do up to and at `time`.
  void work_until(uint64_t time) {
    while (!ends_.empty() && ends_.top().time <= time) {
      const End end = ends_.top();
      ends_.pop();
      ++idle_;
      finish_part(*end.job, end.time);
    }
  }

  void finish_part(Job& job, uint64_t end) {
    if (--job.unfinished == 0) {
      job.done_at = end;
      --active_;
      for (Job* const follower : job.followers) {
        if (--follower->waits_for == 0) {
          make_ready(*follower);
        }
      }
      job.followers.clear();
    }
    hand_out(end);
  }

  void hand_out(uint64_t time) {
    while (idle_ > 0 && !ready_.empty()) {
      Job* job = claim(nullptr);
      --idle_;
      ends_.push({time + job->part_ns, order_++, job});
    }
  }

  const JobTrace& trace_;
  ThreadForecast result_;
  uint64_t now_ = 0;                        // of the kernel thread
  uint64_t order_ = 0;                      // decides between ends of one time
  uint32_t active_ = 0;                     // jobs that run or can run
  int idle_;                                // other threads without work
  std::unordered_map<uint64_t, Job> jobs_;  // launched and not yet joined
  std::deque<Job*> ready_;                  // with unclaimed parts
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

}  // namespace

ThreadForecast forecast_threads(const JobTrace& trace, int threads) {
  return PoolModel(trace, std::max(threads, 1)).run();
}

}  // namespace tpu::model
