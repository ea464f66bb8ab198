// Buffers at several addresses of one allocation of VMEM: it goes back with the last of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tpu::compiler {

class SharedVmem {
 public:
  void add(int64_t address, int64_t allocation);
  bool contains(int64_t address) const { return allocation_.contains(address); }
  // What goes back with `address`: its allocation; nothing: others still lie in it.
  std::optional<int64_t> give(int64_t address);

  // What has been added and given since mark() can be undone, last first: nested marks are fine.
  size_t mark();
  void undo(size_t mark);
  void keep();  // the changes stay

 private:
  struct Change {
    int64_t address, allocation;
    bool added;
  };
  void note(const Change& change);

  std::map<int64_t, int64_t> allocation_;  // by address; others are allocations of their own
  int marks_ = 0;
  std::vector<Change> changes_;  // since the outermost mark
};

}  // namespace tpu::compiler
