// How many bytes of a memory hold something that is still to be read, over time: a page is alive
// from a write, or from the beginning where it is read first, until the last read before the next
// write that does not follow another write; what is written last is alive at the end. By pages and
// by the smallest range around each operand, so that it may be somewhat too much.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "record/step_record.hpp"

namespace tpu::model {

class LivePages {
 public:
  explicit LivePages(uint64_t page_bytes) : page_bytes_(page_bytes) {}

  void begin(uint64_t cycle);
  void touch(uint64_t cycle, uint64_t low, uint64_t bytes, bool write);
  // From the beginning to the end, whose cycle is the last.
  std::vector<spec::LiveBytes> finish(uint64_t cycle);

 private:
  struct Page {
    uint64_t since = 0;  // of what it holds
    uint64_t last = 0;   // access
    bool read = false;   // since it was written
  };
  void live(uint64_t from, uint64_t to);

  const uint64_t page_bytes_;
  uint64_t begin_ = 0;
  std::unordered_map<uint64_t, Page> pages_;
  std::map<uint64_t, int64_t> changes_;  // pages more or less, by cycle
};

}  // namespace tpu::model
