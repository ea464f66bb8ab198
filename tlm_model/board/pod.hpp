// The pod: a board, or several whose chips are one torus, and what they share: host threads, HBM
// pages, decoded programs, traces. Cores and chips count over the whole pod, and modules are named
// so ("board.chip9.core0"). Read pod.cpp, board.cpp and chip.cpp as the block diagram.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <systemc>
#include <vector>

#include "board/board.hpp"
#include "board/board_debug.hpp"
#include "board/board_faults.hpp"
#include "board/board_host.hpp"
#include "board/mxu_select.hpp"
#include "board/pod_process.hpp"
#include "board/probe_sinks.hpp"
#include "board/verilog_select.hpp"
#include "chip/chip.hpp"
#include "command/fold.hpp"
#include "debug/gdb_stub.hpp"
#include "kernel/cycles.hpp"

namespace tpu::model {

class Pod : public sc_core::sc_module {
 public:
  // Throws std::runtime_error for options that this host or board cannot follow. `gdb`, if any,
  // brings a debugger. The programs outlive the pod.
  Pod(sc_core::sc_module_name name, const BoardOptions& options, HostMemory& memory,
      std::span<const uint8_t> rom, GdbLink* gdb, const LaunchPrograms& programs);
  ~Pod() override;

  // Of the whole pod.
  size_t chips() const { return places_.size(); }
  // Null: it is in another process.
  Chip* chip(size_t index) { return places_[index]; }
  const std::vector<Chip*>& chips_here() const { return chips_; }
  bool many_boards() const { return boards_.size() > 1; }
  PodProcess* process() { return process_.get(); }  // null: all boards are here
  Activity& activity() { return activity_; }
  GdbStub* gdb() { return gdb_.get(); }  // null without a debugger
  // Throws std::out_of_range when there is no such core.
  DebugTarget& debug(uint32_t core);

  BoardStats stats();
  // See BoardHost.
  std::vector<spec::UnitWait> waits() const;
  JobPool& pool() { return pool_; }
  std::vector<ThreadForecast> thread_forecast(std::span<const int> threads) {
    return pool_.forecast(threads);
  }
  std::vector<spec::CheckFinding> take_findings() { return sinks_.take_findings(); }
  void host_prepares(bool begins);
  std::vector<ConsoleLine> take_console();
  bool has_console() const { return console_.has_lines(); }
  // Ends lines that have begun: the board is about to close.
  void end_console();
  // Completes trace and wave files; what went wrong with them, or nothing.
  std::string finish_files();
  // See BoardHost.
  std::string change_options(const spec::SimOptions& sim);
  std::string take_xspace() { return sinks_.take_xspace(); }
  std::string take_record() { return sinks_.take_record(); }
  // See BoardHost; in the gate process.
  void visit_state(spec::Archive& archive);
  std::vector<OpTime> take_op_times(uint32_t launch) { return sinks_.take_op_times(launch); }
  void log_commands(const std::optional<spec::MemoryLook>& look);
  spec::CommandLog take_commands() { return sinks_.take_commands(); }

 private:
  struct LockstepPast {  // of matrix units that run otherwise by now
    uint64_t tiles = 0;
    uint64_t mismatches = 0;
    std::string text;
  };

  std::string change_mxus(std::unique_ptr<MxuSelect> select, std::vector<MxuUnit> units);
  std::unique_ptr<MxuSelect> make_select(const BoardOptions& options);
  std::vector<Mxu*> all_mxus();
  uint32_t launch_of(uint32_t core) const;  // id of its last one; of a core that is here
  CoreServices services_on(uint32_t board);
  void make_step_counters();
  uint64_t steps_begun() const;  // of the board here that has begun most
  // `faults`: digest of the fault file; 0: none.
  void make_boards(HostMemory& memory, std::span<const uint8_t> rom, uint32_t faults);
  bool is_here(uint32_t board) const { return process_ == nullptr || process_->has(board); }
  const Fabric& fabric() const { return boards_[first_here_]->fabric(); }
  void make_process(std::shared_ptr<const spec::Links> links, uint32_t faults);
  void settle();
  // First cycle in which something may leave the boards that are here, unless something arrives.
  uint64_t silent() const;
  bool read_memory(const spec::MemoryRange& range, std::span<uint8_t> data);
  void add_core_stats(Chip& chip, size_t index, BoardStats& stats) const;

  BoardOptions options_;
  const std::optional<spec::Fold> fold_;
  const uint32_t rom_crc_;
  Agenda agenda_{"agenda"};
  Activity activity_;
  bool waves_open_ = false;  // the window of --waves
  std::unique_ptr<MxuSelect> mxu_select_;
  LockstepPast lockstep_past_;
  VerilogSelect verilog_select_;
  ProbeSet probes_;
  ProbeSinks sinks_;
  JobPool pool_;
  EqualWrites equal_writes_{pool_};
  PagePool pages_;
  ProgramCache programs_;
  std::vector<StepCounter> steps_;  // by board of the pod
  ConsoleLog console_;
  std::unique_ptr<GdbStub> gdb_;
  const std::unique_ptr<HartCode> hart_code_ = HartCode::make();  // null where a build has none
  HartClock hart_clock_{"hart_clock"};
  std::vector<std::unique_ptr<Board>> boards_;
  size_t first_here_ = 0;                // board
  std::vector<Chip*> chips_;             // that are here, by number
  std::vector<Chip*> places_;            // of all boards; null: in another process
  std::unique_ptr<PodProcess> process_;  // null: all boards are here
  std::unique_ptr<BoardFaults> faults_;  // null without a fault file
  BoardDebug debug_{places_, [this] { return waits(); },
                    [this](bool on) { return sinks_.switch_waves(on, now_cycles()); }};
};

}  // namespace tpu::model
