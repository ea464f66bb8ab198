// What the board tells the process that writes its waves: records of one size, some with bytes
// behind them. Declarations come first; then changes in the order of the model's events, which is
// not the order of their cycles: kReached says from where on nothing can change any more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tpu::model {

struct WaveRecord {
  enum class Kind : uint32_t {
    kScope,     // bytes: its name
    kUpscope,   //
    kEnum,      // signal: lowest number of bits; bytes: its name, then "VALUE NAME", by line
    kSignal,    // signal: width in bits, 0 for text; cycle: number of its enum, 0 for none;
                // bytes: its name
    kText,      // signal: its WaveTone; bytes: a text, which gets the next number
    kSet,       // signal, cycle; value, of a text its number
    kSetWords,  // signal, cycle; bytes: words, the lowest first
    kReached,   // cycle
    kOpen,      // cycle: what changes from then on is written
    kClose,     // cycle: and from then on no more
    kEnd,       // signal: 1 where the last cycles are kept although no window was opened
  };
  Kind kind = Kind::kEnd;
  uint32_t signal = 0;
  uint64_t cycle = 0;
  uint64_t value = 0;  // number of bytes behind the record, where it has any
};

// Records that have not been sent yet, in memory that both processes see: those of a board whose
// process was killed are not lost.
struct WaveTail {
  static constexpr size_t kBytes = size_t{1} << 16;
  std::atomic<uint64_t> begin;  // place of bytes[0] in the stream
  std::atomic<uint64_t> size;
  char bytes[kBytes];
};

}  // namespace tpu::model
