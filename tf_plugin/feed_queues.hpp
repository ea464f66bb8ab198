// Infeed and outfeed: queues on the host, two for each core. What is in them waits here until a
// step takes it or the host does: the board has no memory of its own for it.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lowering/lowered.hpp"
#include "sync/mutex.hpp"
#include "tpu/error.hpp"

namespace tpu::tensorflow {

/// TensorFlow passes the arrays of an infeed in words.
inline constexpr uint64_t kInfeedWord = 4;

/// All calls may come from any thread.
class FeedQueues {
 public:
  using Array = std::vector<std::byte>;  ///< row-major
  using Entry = std::vector<Array>;      ///< what the host enqueues and a step takes at once

  static FeedQueues& get();

  void enqueue(int device, Entry entry);
  /// Waits for the next array of the outfeed. Throws what ended the wait: the launch that it waited
  /// for, or cancel(). That launch may have failed before the call.
  Array dequeue(int device);

  /// One launch on a core: what its transfers do. Arrays come in order.
  class Step {
   public:
    explicit Step(int device);
    /// Waits until the host has enqueued an entry, if `bytes` is the first array of one.
    void take(const HostTransfer& transfer, std::span<std::byte> bytes);
    void give(std::span<const std::byte> bytes) const;

   private:
    const int device_;
    const uint64_t cancels_;  // of before: a launch takes nothing after one of its time
    Entry taken_;
  };

  /// A launch with feeds on the core begins: its number, for fail(). The failure of an earlier one
  /// is over.
  uint64_t begin(int device);
  /// The launch has failed, or could not be made: those that wait for its outfeed get the error,
  /// and so do those that find nothing there until the next launch begins.
  void fail(int device, uint64_t launch, const driver::Error& error);
  /// As fail(), on all cores: it is not known where the launch would have been.
  void fail_all(int devices, const driver::Error& error);
  /// Launches of before take nothing any more, and nobody waits.
  void cancel(const std::string& why);
  /// The process ends: nobody waits any more, and no launch that comes later does.
  void close();
  /// All that is in the queues goes.
  void clear();

 private:
  struct Ends {
    uint64_t count = 0;  ///< of the waits that have been ended
    std::shared_ptr<const driver::Error> why;
  };
  template <typename T>
  struct Queue {
    std::deque<T> entries;
    Ends ends;
    uint64_t launch = 0;  ///< the number of the last one
    bool failed = false;  ///< it has, with the error of `ends`
  };

  uint64_t cancels();
  void cancel_locked(const std::string& why) TPU_REQUIRES(mutex_);
  void end_waits(Queue<Array>& queue, const driver::Error& error) TPU_REQUIRES(mutex_);
  template <typename T>
  T next(Queue<T>& queue, uint64_t cancels) TPU_REQUIRES(mutex_);

  base::Mutex mutex_;
  base::CondVar changed_;
  std::map<int, Queue<Entry>> infeeds_ TPU_GUARDED_BY(mutex_);
  std::map<int, Queue<Array>> outfeeds_ TPU_GUARDED_BY(mutex_);
  Ends cancelled_ TPU_GUARDED_BY(mutex_);
  bool closed_ TPU_GUARDED_BY(mutex_) = false;
};

}  // namespace tpu::tensorflow
