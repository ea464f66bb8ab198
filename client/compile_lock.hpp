// CompileLock: of several processes that want one program, one compiles it, and the others find it
// in the cache when it is done. It is a file in the folder of the cache, which is removed at the
// end.
#pragma once

#include <chrono>
#include <string>

namespace tpu::client {

class CompileLock {
 public:
  /// Waits until nobody has the lock for this key, or so long: whoever has it may be stopped. Then,
  /// and where the folder cannot be written, it locks nothing. Empty folder: the same. After
  /// `quiet` a line on standard error says which process it waits for.
  CompileLock(const std::string& folder, const std::string& key,
              std::chrono::milliseconds limit = std::chrono::minutes(10),
              std::chrono::milliseconds quiet = std::chrono::seconds(10));
  CompileLock(const CompileLock&) = delete;
  CompileLock& operator=(const CompileLock&) = delete;
  ~CompileLock();

  bool holds() const { return file_ >= 0; }
  /// Somebody else has had it meanwhile.
  bool has_waited() const { return has_waited_; }

 private:
  bool try_lock();
  bool try_file();

  const std::string path_;
  int file_ = -1;
  bool has_waited_ = false;
  int holder_ = 0;  // the process that has it; 0: unknown
};

}  // namespace tpu::client
