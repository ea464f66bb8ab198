// A set of cores of a board: a gang, or what is missing of one. The first 64 cores take no memory
// of their own.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "file/archive.hpp"

namespace tpu::spec {

class CoreSet {
 public:
  CoreSet() = default;
  /// Core c is a member where bit c of the mask is set.
  explicit CoreSet(uint64_t mask) : first_(mask) {}
  /// Words of 32 cores, the lowest first.
  explicit CoreSet(std::span<const uint32_t> words) {
    for (size_t i = 0; i < words.size(); ++i) {
      or_word(i / 2, uint64_t{words[i]} << (i % 2 * 32));
    }
  }

  bool has(uint32_t core) const {
    const size_t at = core / kBits;
    return at <= more_.size() && (word(at) >> core % kBits & 1) != 0;
  }
  void insert(uint32_t core) { or_word(core / kBits, uint64_t{1} << core % kBits); }
  void erase(uint32_t core) {
    if (has(core)) {
      word(core / kBits) &= ~(uint64_t{1} << core % kBits);
      trim();
    }
  }
  bool empty() const { return first_ == 0 && more_.empty(); }
  uint32_t size() const {
    auto count = static_cast<uint32_t>(std::popcount(first_));
    for (const uint64_t more : more_) {
      count += static_cast<uint32_t>(std::popcount(more));
    }
    return count;
  }
  /// The lowest core; of a set that is not empty.
  uint32_t lowest() const {
    size_t at = 0;
    while (word(at) == 0) {
      ++at;
    }
    return static_cast<uint32_t>(at * kBits) + static_cast<uint32_t>(std::countr_zero(word(at)));
  }
  /// One above the highest core; 0: empty.
  uint32_t end() const {
    const size_t last = more_.size();
    return empty() ? 0
                   : static_cast<uint32_t>((last + 1) * kBits) -
                         static_cast<uint32_t>(std::countl_zero(word(last)));
  }
  bool meets(const CoreSet& other) const {
    const size_t both = std::min(more_.size(), other.more_.size());
    bool found = (first_ & other.first_) != 0;
    for (size_t i = 0; i < both && !found; ++i) {
      found = (more_[i] & other.more_[i]) != 0;
    }
    return found;
  }
  /// All members of `other` are members.
  bool holds(const CoreSet& other) const {
    bool all = (other.first_ & ~first_) == 0 && other.more_.size() <= more_.size();
    for (size_t i = 0; i < other.more_.size() && all; ++i) {
      all = (other.more_[i] & ~more_[i]) == 0;
    }
    return all;
  }
  bool operator==(const CoreSet&) const = default;

  /// The lowest core first.
  template <class Act>
  void for_each(const Act& act) const {
    for (size_t at = 0; at <= more_.size(); ++at) {
      for (uint64_t left = word(at); left != 0; left &= left - 1) {
        act(static_cast<uint32_t>(at * kBits) + static_cast<uint32_t>(std::countr_zero(left)));
      }
    }
  }

  void visit_state(Archive& archive) {
    archive(first_, more_);
    archive.need(more_.empty() || more_.back() != 0, "a set of cores ends in nothing");
  }

 private:
  static constexpr size_t kBits = 64;

  uint64_t word(size_t at) const { return at == 0 ? first_ : more_[at - 1]; }
  uint64_t& word(size_t at) { return at == 0 ? first_ : more_[at - 1]; }
  void or_word(size_t at, uint64_t bits) {
    if (bits != 0 && at > more_.size()) {
      more_.resize(at);
    }
    if (bits != 0) {
      word(at) |= bits;
    }
  }
  void trim() {  // so that equal sets have equal members
    while (!more_.empty() && more_.back() == 0) {
      more_.pop_back();
    }
  }

  uint64_t first_ = 0;
  std::vector<uint64_t> more_;  // the last is not 0
};

}  // namespace tpu::spec
