// The signals of a wave file, by instance path, and which of them were asked for: a glob takes the
// signals that it matches and all below the instances that it matches, `*` also across dots.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "waves/fst_process.hpp"

namespace tpu::model {

inline constexpr uint32_t kNoSignal = UINT32_MAX;

struct WaveEnum {
  std::string_view name;
  std::span<const std::pair<uint64_t, std::string_view>> values;
};

// How viewers write the values of a signal.
enum class WaveFormat : uint8_t { kDecimal, kHex, kNames, kText };
struct WaveKind {
  uint32_t width = 0;  // in bits
  WaveFormat format = WaveFormat::kDecimal;
  const WaveEnum* names = nullptr;  // of kNames; outlives the tree
};
constexpr WaveKind wave_number(uint32_t width) { return {width}; }
constexpr WaveKind wave_hex(uint32_t width) { return {width, WaveFormat::kHex}; }
constexpr WaveKind wave_names(uint32_t width, const WaveEnum& names) {
  return {width, WaveFormat::kNames, &names};
}
// Numbers of texts, see FstProcess::add_text_signal().
constexpr WaveKind wave_text() { return {0, WaveFormat::kText}; }

class SignalTree {
 public:
  struct Signal {
    std::string path;
    WaveKind kind;
  };

  // No globs: every signal.
  explicit SignalTree(std::vector<std::string> globs);

  // A signal for the file: its number, or kNoSignal where nobody asked for it.
  uint32_t add(const std::string& path, WaveKind kind);
  // Throws std::runtime_error for a glob that has matched nothing, with paths that are like it.
  void check() const;
  // To the file, scope by scope.
  void declare(FstProcess& fst) const;
  // Those that were asked for, by number.
  const std::vector<Signal>& signals() const { return signals_; }

 private:
  std::string near(const std::string& glob) const;

  const std::vector<std::string> globs_;
  std::vector<bool> matched_;  // by glob
  std::vector<Signal> signals_;
  std::vector<std::string> paths_;  // of all signals, for check()
};

}  // namespace tpu::model
