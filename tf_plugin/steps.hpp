// Steps: which launches of the cores belong together. TensorFlow launches a replicated function
// core by core, from its threads, and several steps at a time when a program has several threads.
// It says for each launch which rendezvous its step has, and which operation and iteration it is.
// A later step may have the same rendezvous, in memory that was given again: then a core comes once
// more.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>

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
  /// The name of the launch that the share of this core belongs to (LaunchRequest::meets).
  /// `devices`: how many cores it has.
  std::string share(const Key& key, int device, size_t devices);
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
  /// All fail, and the program is told why. Cores that are still on their way get the error, too.
  void fail_all();

 private:
  struct Open {
    uint64_t number = 0;
    std::set<int> came;
    bool failed = false;
  };

  void count(int change);
  void keep_refused(const std::string& name) TPU_REQUIRES(mutex_);

  base::Mutex mutex_;                                // a leaf lock
  std::map<Key, Open> open_ TPU_GUARDED_BY(mutex_);  // those that some cores have not launched
  std::deque<std::string> refused_ TPU_GUARDED_BY(mutex_);  // the last ones
  uint64_t number_ TPU_GUARDED_BY(mutex_) = 0;
  int operations_ TPU_GUARDED_BY(mutex_) = 0;
};

}  // namespace tpu::tensorflow
