// Steps: which launches of the cores belong together. TensorFlow launches a replicated function
// core by core, from its threads, and several steps at a time when a program has several threads.
// It says for each launch which rendezvous its step has, and which operation and iteration it is.
// A launch that some cores have not asked for holds the rendezvous, so that no later step has one
// at the same address. One that TensorFlow does not count cannot be held: then a core that comes
// once more begins another launch.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sync/mutex.hpp"

namespace tpu::tensorflow {

class Steps {
 public:
  /// Those of this process.
  static Steps& get();

  struct Key {
    const void* rendezvous = nullptr;
    std::string launch;  ///< operation, frame and iteration
    auto operator<=>(const Key&) const = default;
  };
  /// What keeps the rendezvous; null: nothing does. Called with a lock.
  using Hold = std::function<std::shared_ptr<const void>()>;
  /// The name of the launch that the share of this core belongs to (LaunchRequest::meets).
  /// `devices`: how many cores it has.
  std::string share(const Key& key, int device, size_t devices, const Hold& hold = nullptr);
  /// The launch fails: some cores may never come.
  void failed(const std::string& name);
  /// It fails since one of its cores cannot bring a share: the operation there tells the program.
  void refused(const std::string& name);
  bool was_refused(const std::string& name);

  /// An operation that launches is under way, while the object lives.
  class Operation {
   public:
    explicit Operation(Steps& steps) : steps_(steps) { steps_.count(1); }
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;
    ~Operation() { steps_.count(-1); }

   private:
    Steps& steps_;
  };
  /// A step begins. When no operation is under way, those whose launches have failed are over.
  void begin();
  /// All fail, since one step was cancelled: the program is told why. Cores that are still on their
  /// way get the error, too. When several steps have launches, it is not known which of them was
  /// cancelled, and the streams have the error.
  void fail_all();

 private:
  struct Open {
    uint64_t number = 0;
    std::set<int> came = {};
    bool failed = false;
    bool over = false;                                 // it has failed, and its step has ended
    std::shared_ptr<const void> rendezvous = nullptr;  // held
  };
  using Dropped = std::vector<std::shared_ptr<const void>>;  // to be let go without the lock

  void count(int change);
  void drop_failed(Dropped& dropped) TPU_REQUIRES(mutex_);
  void keep_refused(const std::string& name) TPU_REQUIRES(mutex_);

  base::Mutex mutex_;                                // a leaf lock
  std::map<Key, Open> open_ TPU_GUARDED_BY(mutex_);  // those that some cores have not launched
  std::deque<std::string> refused_ TPU_GUARDED_BY(mutex_);  // the last ones
  uint64_t number_ TPU_GUARDED_BY(mutex_) = 0;
  int operations_ TPU_GUARDED_BY(mutex_) = 0;
};

}  // namespace tpu::tensorflow
