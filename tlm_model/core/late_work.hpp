// Jobs of an engine's commands, which may be done later than the command ends in simulated time: a
// ring of records, each used again for the command that comes `kAhead` behind. So far the
// simulation runs ahead of the data. What a record holds beside the job (pages, deferred copies) is
// given back when the job is done and the command has ended. Kernel thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/deferred_copies.hpp"
#include "kernel/data_order.hpp"
#include "kernel/job_pool.hpp"

namespace tpu::model {

class LateWork : public Job {
 public:
  DeferredCopies::Uses uses;  // that the job reads
  DataUses touches;           // what it reads and writes, until it is launched
  // Somebody needs the results, or what the job found, when the command ends.
  bool joined = false;

 private:
  template <class Work>
  friend class LateWorks;
  enum class Phase : uint8_t { kFree, kStarted, kEnded };
  Phase phase_ = Phase::kFree;
};

// `Work`: a LateWork with give_back(), which is called when job and command are over.
template <class Work>
class LateWorks {
 public:
  // Commands of a queue whose data may be missing: enough for the data of other queues and cores to
  // come first. Few, since the host's calls are served where simulated time has got to: with 64,
  // the uploads of a loop in PyTorch began a tenth of a step later.
  static constexpr size_t kAhead = 8;

  // `flights`: commands that are started and not done.
  LateWorks(JobPool& pool, DeferredCopies& copies, size_t flights)
      : pool_(pool), copies_(copies), works_(std::max(kAhead, flights + 1)), by_flight_(flights) {}

  // For the command that starts now, whose start may still fail until started().
  Work& next() {
    Work& work = works_[next_];
    pool_.wait(work);
    if (held_ == works_.size()) {
      if (work.phase_ != LateWork::Phase::kFree) {
        free(work);
      }
      drop_oldest();
      work.rethrow();
    }
    work.joined = false;
    work.touches.clear();
    return work;
  }
  // The job of next() is launched.
  void started(size_t flight) {
    works_[next_].phase_ = LateWork::Phase::kStarted;
    by_flight_[flight] = &works_[next_];
    next_ = (next_ + 1) % works_.size();
    ++held_;
  }
  // The command starts without a job.
  void none(size_t flight) { by_flight_[flight] = nullptr; }
  // Of a command in flight; null: none.
  Work* at(size_t flight) { return by_flight_[flight]; }
  // The command is done. Its job is, too, if it is to be joined.
  void ended(size_t flight) {
    Work* const work = by_flight_[flight];
    if (work == nullptr) {
      return;
    }
    work->phase_ = LateWork::Phase::kEnded;
    if (work->joined) {
      pool_.wait(*work);
      free(*work);
      work->rethrow();
    }
    free_done();
  }
  // All jobs are done when this returns, or throws what one of them threw.
  void settle() {
    for (size_t i = 0; i < held_; ++i) {
      pool_.wait(held(i));
    }
    for (size_t i = 0; i < held_; ++i) {
      held(i).rethrow();
    }
    free_done();
  }

 private:
  void free(Work& work) {
    work.give_back();
    copies_.release(work.uses);
    work.phase_ = LateWork::Phase::kFree;
  }
  // From the oldest on.
  void free_done() {
    while (held_ != 0) {
      Work& work = works_[oldest_];
      if (work.phase_ == LateWork::Phase::kStarted || !work.done()) {
        return;
      }
      if (work.phase_ == LateWork::Phase::kEnded) {
        free(work);
      }
      drop_oldest();
      work.rethrow();
    }
  }
  // From the oldest on.
  Work& held(size_t index) { return works_[(oldest_ + index) % works_.size()]; }
  void drop_oldest() {
    oldest_ = (oldest_ + 1) % works_.size();
    --held_;
  }

  JobPool& pool_;
  DeferredCopies& copies_;
  std::vector<Work> works_;
  std::vector<Work*> by_flight_;
  size_t next_ = 0;
  size_t oldest_ = 0;
  size_t held_ = 0;  // from oldest_ on: those that are not free, and some that are
};

}  // namespace tpu::model
