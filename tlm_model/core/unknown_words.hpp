// Runs without data: the words of SMEM that a transfer would have filled. The sequencer refuses
// control flow that depends on them.
#pragma once

#include <cstdint>
#include <vector>

namespace tpu::model {

// By word; empty in a run with data.
using UnknownWords = std::vector<bool>;

// Every word that bytes [first, first + bytes) touch.
inline void mark_unknown(UnknownWords& words, uint64_t first, uint64_t bytes) {
  for (uint64_t word = first / 4; word * 4 < first + bytes; ++word) {
    words[word] = true;
  }
}

}  // namespace tpu::model
