// Groups of the cores of a replay that are in the same state, have the same to do, and live among
// cores of the same groups on their chip: as long as no group meets another one, what one core of a
// group does all of them do, in the same cycle. The first core of a group is replayed for them all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace tpu::driver {

class CoreGroups {
 public:
  explicit CoreGroups(size_t cores) : first_(cores) { split(); }

  bool operator==(const CoreGroups& other) const { return first_ == other.first_; }
  /// Cores that are replayed.
  const std::vector<uint32_t>& firsts() const { return firsts_; }
  uint32_t first_of(size_t core) const { return first_[core]; }
  uint32_t size_of(uint32_t first) const {
    return static_cast<uint32_t>(std::ranges::count(first_, first));
  }
  bool split_up() const { return firsts_.size() == first_.size(); }
  bool one() const { return firsts_.size() == 1; }

  void split() {
    std::iota(first_.begin(), first_.end(), 0U);
    firsts_ = first_;
  }
  /// Joins cores of the same group for which `same(a, b)`; `chip_of(core)`. True: there are others
  /// than before.
  template <typename Same, typename ChipOf>
  bool join(const Same& same, const ChipOf& chip_of) {
    std::vector<uint32_t> first = first_;
    for (const uint32_t a : firsts_) {
      for (const uint32_t b : firsts_) {
        if (b < a && first[b] == b && same(b, a)) {
          std::ranges::replace(first, a, b);
          break;
        }
      }
    }
    while (part_by_chip(first, chip_of)) {
    }
    return take(std::move(first));
  }

 private:
  // Separates cores of a group whose chips have cores of different groups; false: no change.
  template <typename ChipOf>
  static bool part_by_chip(std::vector<uint32_t>& first, const ChipOf& chip_of) {
    const auto chip = [&](uint32_t core) {
      std::vector<uint32_t> groups;
      for (uint32_t i = 0; i < first.size(); ++i) {
        if (chip_of(i) == chip_of(core)) {
          groups.push_back(first[i]);
        }
      }
      std::ranges::sort(groups);
      return groups;
    };
    std::vector<uint32_t> parted(first.size());
    for (uint32_t i = 0; i < first.size(); ++i) {
      uint32_t k = 0;
      while (k < i && (first[k] != first[i] || chip(k) != chip(i))) {
        ++k;
      }
      parted[i] = k < i ? parted[k] : i;
    }
    const bool other = parted != first;
    first = std::move(parted);
    return other;
  }

  bool take(std::vector<uint32_t> first) {
    const bool other = first != first_;
    first_ = std::move(first);
    firsts_.clear();
    for (uint32_t i = 0; i < first_.size(); ++i) {
      if (first_[i] == i) {
        firsts_.push_back(i);
      }
    }
    return other;
  }

  std::vector<uint32_t> first_;   // by core: of its group
  std::vector<uint32_t> firsts_;  // in order
};

}  // namespace tpu::driver
