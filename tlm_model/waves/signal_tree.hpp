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

using WaveEnum = std::span<const std::pair<uint64_t, std::string_view>>;

class SignalTree {
 public:
  struct Signal {
    std::string path;
    uint32_t width;
    WaveEnum names;  // of its values; empty for numbers
  };

  // No globs: every signal.
  explicit SignalTree(std::vector<std::string> globs);

  // A signal for the file: its number, or kNoSignal where nobody asked for it. `names` must outlive
  // the tree.
  uint32_t add(const std::string& path, uint32_t width, WaveEnum names = {});
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
