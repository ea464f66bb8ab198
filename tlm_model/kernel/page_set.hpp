// Host addresses of the pages of an HBM range that one job in flight uses. Filled by the HBM at a
// command's start, given back at its end. Reused from command to command, so that nothing allocates
// in steady state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tpu::model {

struct HbmPage;

// Of one byte or more. Other data ends the comparison at its first bytes.
inline bool all_zero(const uint8_t* data, uint64_t bytes) {
  return *data == 0 && std::memcmp(data, data + 1, bytes - 1) == 0;
}

class PageSet {
 public:
  static constexpr unsigned kPageShift = 16;
  static constexpr uint64_t kPageBytes = uint64_t{1} << kPageShift;
  static constexpr uint64_t kPageMask = kPageBytes - 1;

  // Opens the set for the pages that cover [first_byte, last_byte].
  void open(uint64_t first_byte, uint64_t last_byte) {
    first_page_ = first_byte >> kPageShift;
    data_.assign((last_byte >> kPageShift) - first_page_ + 1, nullptr);
  }
  uint8_t* at(uint64_t address) const {
    return data_[(address >> kPageShift) - first_page_] + (address & kPageMask);
  }
  bool has(uint64_t page) const { return data_[page - first_page_] != nullptr; }
  // From the job: it writes nothing to this page of those that it overwrites, counted from the
  // first one. What is there is not its own, and may be memory that nobody has touched.
  void note_unwritten(size_t page) { pinned_[page].bytes = 0; }
  // From the job, once all is written: notes where it has left zeros. What it wrote is far from the
  // kernel thread.
  void look_for_zeros() {
    for (Pin& pin : pinned_) {
      pin.zero = pin.bytes != 0 && all_zero(data_[pin.index - first_page_] + pin.offset, pin.bytes);
    }
  }

 private:
  friend class HbmStore;
  struct Pin {
    HbmPage* page;
    uint64_t index;          // in the HBM
    uint32_t offset, bytes;  // of a page: what the job overwrites; no bytes if it may leave some
    bool zero = false;       // these bytes, as the job has written them
  };
  uint64_t first_page_ = 0;
  std::vector<uint8_t*> data_;  // by page; null where the job does not go
  std::vector<Pin> pinned_;
  bool write_ = false;
};

// Whoever decides what is in pages, when their bytes come.
class PagesToCome {
 public:
  // Waits for them; then the pages are as they are.
  virtual void settle() = 0;

 protected:
  ~PagesToCome() = default;
};

}  // namespace tpu::model
