// Which engine computes which matrix unit: the patterns of a command line
// ("board.chip0.*=lockstep:1/100") against instance paths. Owns what lockstep engines report.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "board/board_host.hpp"
#include "board/unit_reports.hpp"
#include "core/engines/mxu.hpp"
#include "mxu/mxu_lockstep.hpp"
#include "waves/verilog_ports.hpp"

namespace tpu::model {

class MxuSelect {
 public:
  using PortWatch = std::function<void(const std::string& path, const MxuPorts& ports)>;

  // Throws std::runtime_error for a pattern that matches no matrix unit of the board or a mode that
  // does not exist.
  // `watch` is told what passes the ports of each Verilog, `waves_open` while the window of waves
  // is open; both outlive it.
  MxuSelect(const BoardOptions& options, PortWatch watch, const bool& waves_open);

  // Matrix units that run as Verilog, at least at times.
  std::vector<VerilogUnit> verilog_units() const;

  // Engines of the matrix unit with this path. Throws std::runtime_error when this host or shape
  // cannot run it.
  MxuUnit make(const std::string& path);

  // Sum over all engines with Verilog, and the text of mismatches and failed assertions.
  MxuLockstepCounts counts() const;
  std::string mismatch_text() const;
  // At the end of a run of `steps` steps: completes the wave file. What was asked for and did not
  // happen, one line each, or nothing: waves without a tile, lockstep that compared nothing.
  // `waves_missed`: the window of the waves never opened, which has been said; nothing is said of
  // units that were to be Verilog inside of it.
  std::string finish(uint64_t steps, bool waves_missed) const;

 private:
  struct Mode {
    std::string kind = "fast";
    uint64_t first_step = 0;
    uint64_t last_step = UINT64_MAX;
    std::string text{};  // as it was given: pattern and mode
    bool verilog() const { return kind == "rtl" || kind.starts_with("lockstep"); }
    bool in_waves = false;  // only while their window is open
    bool windowed() const { return first_step != 0 || last_step != UINT64_MAX || in_waves; }
  };
  struct Lockstep {
    const MxuLockstepEngine* engine;  // owned by its matrix unit
    std::string text;                 // the option that asked for it
    bool in_waves;
  };

  static Mode parse(const std::string& pattern, const std::string& text);
  std::unique_ptr<MxuEngine> engine(const std::string& path, const Mode& mode);
  const Mode& mode_of(const std::string& path) const;
  void check_verilog_wanted() const;
  void set_waves(const std::string& path, MxuEngine& engine, bool in_waves);
  void watch_ports(const std::string& path, MxuEngine& engine);

  const BoardOptions options_;
  const PortWatch watch_;
  const bool& waves_open_;
  std::vector<std::pair<std::string, Mode>> modes_;
  const Mode fast_{};
  std::vector<Lockstep> lockstep_;
  std::vector<const MxuEngine*> alone_;  // Verilog that decides; owned by their matrix units
  std::function<std::string()> finish_waves_;
  std::string wave_unit_;            // path of the unit of --mxu-waves
  bool wave_unit_in_waves_ = false;  // the unit of --mxu-waves is Verilog only in --waves
  mutable std::mutex mutex_;
  UnitReports reports_;
};

}  // namespace tpu::model
