#include "feed_queues.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "errors.hpp"

namespace tpu::tensorflow {

FeedQueues& FeedQueues::get() {
  static auto* const feeds = new FeedQueues;  // never destroyed: threads may outlive statics
  return *feeds;
}

void FeedQueues::enqueue(int device, Entry entry) {
  const base::MutexLock lock(mutex_);
  infeeds_[device].entries.push_back(std::move(entry));
  changed_.notify_all();
}

FeedQueues::Array FeedQueues::dequeue(int device) {
  const base::MutexLock lock(mutex_);
  return next(outfeeds_[device], cancelled_.count);
}

uint64_t FeedQueues::cancels() {
  const base::MutexLock lock(mutex_);
  return cancelled_.count;
}

template <typename T>
T FeedQueues::next(Queue<T>& queue, uint64_t cancels) {
  const uint64_t ended = queue.ends.count;
  for (;; changed_.wait(mutex_)) {
    if (closed_ || cancelled_.count != cancels) {
      throw driver::Error(*cancelled_.why);
    }
    if (!queue.entries.empty()) {
      break;
    }
    if (queue.failed || queue.ends.count != ended) {
      throw driver::Error(*queue.ends.why);
    }
  }
  T entry = std::move(queue.entries.front());
  queue.entries.pop_front();
  return entry;
}

FeedQueues::Step::Step(int device) : device_(device), cancels_(FeedQueues::get().cancels()) {}

void FeedQueues::Step::take(const HostTransfer& transfer, std::span<std::byte> bytes) {
  if (transfer.part == 0) {
    FeedQueues& feeds = FeedQueues::get();
    const base::MutexLock lock(feeds.mutex_);
    taken_ = feeds.next(feeds.infeeds_[device_], cancels_);
  }
  if (taken_.size() != transfer.parts) {
    pjrt::throw_invalid(
        fmt::format("the host has enqueued {} arrays for the infeed of core {}: expected {}, as "
                    "the step takes",
                    taken_.size(), device_, transfer.parts));
  }
  const Array& array = taken_[transfer.part];
  // Of TensorFlow's words, the last one may have room behind the array.
  if (array.size() < bytes.size() || array.size() >= bytes.size() + kInfeedWord) {
    pjrt::throw_invalid(fmt::format(
        "array {} that the host has enqueued for the infeed of core {} has {} bytes: "
        "expected {}, for [{}]",
        transfer.part, device_, array.size(), bytes.size(), fmt::join(transfer.dims, ",")));
  }
  std::copy_n(array.begin(), bytes.size(), bytes.begin());
}

// TensorFlow takes the arrays of a list one by one.
void FeedQueues::Step::give(std::span<const std::byte> bytes) const {
  FeedQueues& feeds = FeedQueues::get();
  const base::MutexLock lock(feeds.mutex_);
  feeds.outfeeds_[device_].entries.emplace_back(bytes.begin(), bytes.end());
  feeds.changed_.notify_all();
}

uint64_t FeedQueues::begin(int device) {
  const base::MutexLock lock(mutex_);
  Queue<Array>& queue = outfeeds_[device];
  queue.failed = false;
  return ++queue.launch;
}

void FeedQueues::end_waits(Queue<Array>& queue, const driver::Error& error) {
  ++queue.ends.count;
  queue.ends.why = std::make_shared<const driver::Error>(error);
  changed_.notify_all();
}

void FeedQueues::fail(int device, uint64_t launch, const driver::Error& error) {
  const base::MutexLock lock(mutex_);
  Queue<Array>& queue = outfeeds_[device];
  end_waits(queue, error);
  queue.failed = launch == queue.launch;
}

void FeedQueues::fail_all(int devices, const driver::Error& error) {
  const base::MutexLock lock(mutex_);
  for (int device = 0; device < devices; ++device) {
    Queue<Array>& queue = outfeeds_[device];
    end_waits(queue, error);
    queue.failed = true;
  }
}

void FeedQueues::cancel(const std::string& why) {
  const base::MutexLock lock(mutex_);
  cancel_locked(why);
}

void FeedQueues::close() {
  const base::MutexLock lock(mutex_);
  closed_ = true;
  cancel_locked("the process ends");
}

void FeedQueues::cancel_locked(const std::string& why) {
  ++cancelled_.count;
  cancelled_.why = std::make_shared<const driver::Error>(driver::ErrorCode::kCancelled, why);
  changed_.notify_all();
}

void FeedQueues::clear() {
  const base::MutexLock lock(mutex_);
  for (auto& [device, queue] : infeeds_) {
    queue.entries.clear();  // somebody may wait at the queue
  }
  for (auto& [device, queue] : outfeeds_) {
    queue.entries.clear();
    queue.failed = false;
  }
}

}  // namespace tpu::tensorflow
