// Descriptors that children made by fork() must not keep: a connection ends, and a lock is given
// back, when the last copy is closed. FD_CLOEXEC closes them in programs that are started, which
// such children are not.
#pragma once

#include <utility>

namespace tpu::base {

/// While it lives, fork() closes the descriptor in the child.
class ParentOnly {
 public:
  explicit ParentOnly(int descriptor);
  ParentOnly(ParentOnly&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ParentOnly& operator=(ParentOnly&& other) = delete;
  ParentOnly(const ParentOnly&) = delete;
  ParentOnly& operator=(const ParentOnly&) = delete;
  ~ParentOnly();

 private:
  int descriptor_;
};

}  // namespace tpu::base
