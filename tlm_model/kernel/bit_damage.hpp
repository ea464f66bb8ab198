// Words of a memory whose bits have flipped, while ECC is on: one bit of a 32-bit word is corrected
// when the word is read, which also writes it back; two bits cannot be corrected, and the word is
// damaged until it is written as a whole. Only a board with a fault file has this.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

namespace tpu::model {

class BitDamage {
 public:
  static constexpr uint64_t kWordBytes = 4;
  // A word was read: its address, and whether ECC could correct it.
  using Read = std::function<void(uint64_t address, bool corrected)>;

  explicit BitDamage(Read read) : read_(std::move(read)) {}

  bool empty() const { return words_.empty(); }
  void add(uint64_t address, uint32_t bits) { words_[address / kWordBytes] += bits; }

  // Bytes were written: words that they cover are whole again.
  void written(uint64_t address, uint64_t bytes) {
    const uint64_t first = (address + kWordBytes - 1) / kWordBytes;
    const uint64_t end = (address + bytes) / kWordBytes;
    if (first < end) {
      words_.erase(words_.lower_bound(first), words_.lower_bound(end));
    }
  }

  // Bytes are read: the address of the first word that cannot be corrected, if there is one.
  std::optional<uint64_t> read(uint64_t address, uint64_t bytes) {
    std::optional<uint64_t> bad;
    const uint64_t end = (address + bytes + kWordBytes - 1) / kWordBytes;
    auto word = words_.lower_bound(address / kWordBytes);
    while (word != words_.end() && word->first < end) {
      const bool corrected = word->second == 1;
      const uint64_t at = word->first * kWordBytes;
      word = corrected ? words_.erase(word) : std::next(word);
      read_(at, corrected);
      if (!corrected && !bad) {
        bad = at;
      }
    }
    return bad;
  }

 private:
  const Read read_;
  std::map<uint64_t, uint32_t> words_;  // by number: bits that have flipped
};

}  // namespace tpu::model
