// Pages of mapped files that cannot be had any more: another process has cut the file, or its disk
// has an error. The system says so by SIGBUS at the access, which ends a process; here the pages
// become zeros and the mapping is marked, so that whoever reads it can refuse the file by name.
// What is written there reaches no file.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tpu::driver {

/// A mapping that is watched as long as the object lives, which is no longer than the mapping. Any
/// thread.
class WatchedMapping {
 public:
  /// `writable`: as the mapping is, since a store into a lost page must not end the process either.
  WatchedMapping(const void* begin, size_t bytes, bool writable = false);
  ~WatchedMapping();
  WatchedMapping(const WatchedMapping&) = delete;
  WatchedMapping& operator=(const WatchedMapping&) = delete;

  /// Some of its pages are zeros in the place of what the file had.
  bool lost() const;

 private:
  struct Entry;
  friend struct LostPages;
  Entry* entry_;
};

}  // namespace tpu::driver
