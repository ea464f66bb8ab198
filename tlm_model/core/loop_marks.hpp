// Where a program is, by its trace marks: a mark that begins again where it has just ended is the
// next iteration of a loop. For fault reports,
// and for reports on programs that take long.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tpu::model {

class LoopMarks {
 public:
  struct Position {
    uint32_t op = UINT32_MAX;  // none
    uint64_t iteration = 0;    // counted from 1
  };

  LoopMarks() { open_.reserve(16); }

  void clear() {
    open_.clear();
    depth_ = 0;
  }

  void begin(uint32_t op) {
    if (depth_ < open_.size() && open_[depth_].op == op) {
      open_.resize(depth_ + 1);
      ++open_[depth_].iteration;
    } else if (depth_ < kMaxDepth) {
      open_.resize(depth_);
      open_.push_back({op, 1});
    }
    ++depth_;
  }

  void end() { depth_ -= depth_ > 0 ? 1 : 0; }

  // Those that are open, the outermost first, and the one between whose iterations `op` is at work.
  std::vector<Position> all(uint32_t op) const {
    std::vector<Position> found(
        open_.begin(), open_.begin() + static_cast<ptrdiff_t>(std::min(depth_, open_.size())));
    if (depth_ < open_.size() && open_[depth_].op == op) {
      found.push_back(open_[depth_]);
    }
    return found;
  }

  // The innermost open mark; between two iterations of an outermost loop, that loop.
  Position innermost() const {
    const size_t at = depth_ > 0 ? depth_ - 1 : 0;
    return at < open_.size() ? open_[at] : Position{};
  }

 private:
  static constexpr size_t kMaxDepth = 256;  // marks of a damaged program may never end
  std::vector<Position> open_;              // at and beyond depth_: ended, may begin again
  size_t depth_ = 0;
};

}  // namespace tpu::model
