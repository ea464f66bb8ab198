// What a wave file has, as the files for its viewers need it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tpu::model {

// What a unit does while a text is the value of a signal: viewers colour it.
enum class WaveTone : uint8_t { kIdle, kQueued, kWaits, kRuns };

struct WaveText {
  std::string text;
  WaveTone tone = WaveTone::kIdle;
};

struct WaveSpan {
  uint64_t begin = 0;  // picoseconds, as all times in the file
  uint64_t end = 0;
  std::optional<uint64_t> trigger{};  // that opened the window
  std::span<const WaveText> texts{};  // by number
};

}  // namespace tpu::model
