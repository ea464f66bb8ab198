// What a viewer shows of a wave file at first sight: a few rows for each engine, and the other
// signals in closed groups below. gtkwave_view.cpp and surfer_view.cpp write it down.
#pragma once

#include <string>
#include <vector>

#include "waves/signal_tree.hpp"

namespace tpu::model {

struct WaveRow {
  enum class Draw : uint8_t {
    kValues,
    kTones,   // a text, coloured by what its unit does
    kStairs,  // a number as a curve
    kHighStairs,
  };
  const SignalTree::Signal* signal = nullptr;
  std::string label{};
  Draw draw = Draw::kValues;
};

struct WaveGroup {
  std::string name{};  // empty: its rows are in no group
  bool open = false;
  std::vector<WaveRow> rows{};
};

struct WavePage {
  std::string name{};  // empty: the board; else "chip0.core1"
  std::vector<WaveGroup> groups{};
};

// One of the board, a row for each engine of each core, and one for each core; a single one where
// the file has signals of one core alone.
std::vector<WavePage> wave_pages(const SignalTree& tree);

}  // namespace tpu::model
