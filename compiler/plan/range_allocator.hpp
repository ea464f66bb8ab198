// First-fit allocator of byte ranges; the search starts behind the last allocation, so that freed
// bytes rest and later loads need not wait for their last readers.
//
// With `apart`, small ranges, most of which hold what a kernel makes, lie at the front, in an
// eighth of all: a large one that comes from HBM does not wait for them. The search for either may
// start inside of a hole, which leaves more and smaller holes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tpu::compiler {

inline constexpr int64_t kAlign = 512;

inline int64_t round_up(int64_t n, int64_t m) { return (n + m - 1) / m * m; }

class RangeAllocator {
 public:
  RangeAllocator(int64_t size, bool apart);
  std::optional<int64_t> take(int64_t bytes);  // nothing: no hole is large enough
  void give(int64_t address);
  int64_t peak_end() const { return peak_end_; }

  // What has been taken and given since mark() can be undone, last first: nested marks are fine.
  // The search goes on behind what was undone.
  struct Mark {
    size_t changes;
    int64_t peak_end;
  };
  Mark mark();
  void undo(const Mark& mark);
  void keep(const Mark& mark);  // the changes stay

 private:
  struct Change {
    int64_t address, bytes;
    bool taken;
  };
  // The first place in [from, to).
  std::optional<int64_t> find(int64_t bytes, int64_t from, int64_t to) const;
  // Anywhere, behind the last allocation if there is room.
  std::optional<int64_t> find(int64_t bytes) const;
  int64_t& cursor_of(int64_t bytes);
  void release(int64_t address, int64_t bytes);
  void note(const Change& change);

  std::map<int64_t, int64_t> free_;  // address -> bytes
  std::map<int64_t, int64_t> taken_;
  const int64_t size_, front_;  // front_ 0: all together
  int64_t small_cursor_ = 0, cursor_, peak_end_ = 0;
  int marks_ = 0;
  std::vector<Change> changes_;  // since the outermost mark
};

}  // namespace tpu::compiler
