// Watched bytes of a control hart.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace tpu::model {

// Bytes whose accesses stop the hart. Its own ones: DMA into its memories is not seen.
struct HartWatch {
  uint32_t addr;
  uint32_t size_bytes;
  bool read;
  bool write;
  bool operator==(const HartWatch&) const = default;
};

class HartWatches {
 public:
  void set(const HartWatch& watch) {
    if (std::ranges::find(watches_, watch) == watches_.end()) {
      watches_.push_back(watch);
    }
  }
  void clear(const HartWatch& watch) { std::erase(watches_, watch); }
  bool empty() const { return watches_.empty(); }
  // True if the access that was done is watched.
  bool note(uint32_t addr, uint32_t size_bytes, bool write) {
    for (const HartWatch& watch : watches_) {
      if ((write ? watch.write : watch.read) &&
          (addr - watch.addr < watch.size_bytes || watch.addr - addr < size_bytes)) {
        hit_ = watch;
        return true;
      }
    }
    return false;
  }
  // The one that the last noted access met.
  const std::optional<HartWatch>& hit() const { return hit_; }
  void forget_hit() { hit_.reset(); }

 private:
  std::vector<HartWatch> watches_;
  std::optional<HartWatch> hit_;
};

}  // namespace tpu::model
