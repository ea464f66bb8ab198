// A launch that hangs, in words and as JSON: who waits for whom, with operations and source lines,
// and the cycle that the waits make, if they do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "exe/executable.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {

/// The program that a core runs; null: none known.
using ProgramOfCore = std::function<const exe::ExecutableT*(uint32_t core)>;

/// "core 0 dma_out (word 12, op 3 copy at model.py:7)".
std::string place_text(const CommandPlace& place, const ProgramOfCore& program);

/// What the control hart of a core does, by its functions from the innermost out.
struct HartTrace {
  int device = 0;
  bool sleeping = false;
  uint32_t pc = 0;
  std::vector<std::string> frames;  ///< "main (main.c:19)"
};

struct HangReport {
  std::string kind;  ///< deadlock, watchdog, time limit
  std::string what;  ///< the launch
  std::vector<UnitWait> waits;
  std::vector<HartTrace> harts;
  ProgramOfCore program;
  bool one_process = true;  ///< has all boards; else signals were looked for in each by itself
};

/// Indices of waits of which each is for the next one and the last for the first; empty: the waits
/// make no cycle.
std::vector<size_t> wait_cycle(std::span<const UnitWait> waits);

/// One line a unit, then the cycle, or the semaphores that nobody is known to signal. Empty without
/// waits.
std::string hang_text(const HangReport& report);
std::string hang_json(const HangReport& report);

}  // namespace tpu::driver
