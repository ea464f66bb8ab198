// Figures over a window of simulated time: from two snapshots of the board's counters.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "tpu/board.hpp"

namespace tpu::driver {

/// One counter of the cores, by device of a window.
struct NamedCounter {
  std::string_view name;
  std::vector<uint64_t> cores;
};

/// Sums over one or more windows. Definitions: docs/command.md, "Metrics of a run".
class Window {
 public:
  /// Figures of the cores `devices`.
  Window(const Board& board, const std::vector<int>& devices);

  /// Starts a window at the present simulated time; waits for a snapshot of the counters.
  void open();
  /// Ends it. Nothing is waited for between the last wait of the caller and the end of the window.
  void close();

  uint64_t cycles() const { return cycles_; }
  std::vector<uint64_t> run_cycles() const { return run_cycles_; }
  std::vector<uint64_t> hart_instructions() const { return hart_instructions_; }
  uint64_t commands() const { return commands_; }
  /// By core, in the order of the devices: what its commands read and wrote in its HBM, and sent to
  /// other cores.
  std::vector<uint64_t> hbm_read_bytes() const;
  std::vector<uint64_t> hbm_written_bytes() const;
  std::vector<uint64_t> link_bytes() const;
  /// Every counter that the cores have, and what it grew by in the windows.
  std::vector<NamedCounter> counters() const;
  double seconds() const;
  double mxu_utilization() const;
  double idle() const;

  const BoardCounters& last() const { return last_; }

 private:
  std::vector<uint64_t> grown(size_t counter) const;

  Board board_;
  std::vector<size_t> devices_;
  BoardCounters last_;
  uint64_t start_ = 0;
  std::vector<uint64_t> harts_at_start_;
  uint64_t cycles_ = 0;
  uint64_t flops_ = 0;
  uint64_t commands_ = 0;
  std::vector<uint64_t> run_cycles_;
  std::vector<uint64_t> hart_instructions_;
  std::vector<std::vector<uint64_t>> grown_;  // by device of the window, then counter
};

/// What lockstep with the Verilog has compared, and how much of it differs.
nlohmann::ordered_json lockstep_figures(const BoardCounters& counters);

/// Throws Error (Internal) when lockstep tiles differ from the Verilog or the happens-before
/// checker found something: the results of such a run are not to be trusted.
void require_clean(const BoardCounters& counters);

}  // namespace tpu::driver
