// Times and counters of a board: what its cores did, and what the simulation of it costs the host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tpu/board_facet.hpp"
#include "tpu/board_report.hpp"

namespace tpu::driver {

/// Where the cycles of a core went; they sum to its cycles since reset. While a program runs they
/// belong to the foremost of what is busy, otherwise to what the core waits for.
struct CoreTimes {
  uint64_t compute = 0;  ///< a matrix unit, the vector unit or the XLU is busy
  uint64_t links = 0;    ///< else: a transfer to another core, as of an all-reduce
  uint64_t hbm = 0;      ///< else: a copy between HBM and VMEM
  uint64_t stalled = 0;  ///< else: the program waits, for other cores too
  uint64_t input = 0;    ///< no program runs: the host makes input ready or sends it here
  uint64_t host = 0;     ///< no program runs, and nothing comes: dispatch, or nothing to do
};

/// Performance counters of one core at one cycle, since its reset.
struct CoreCounters {
  uint64_t cycles = 0;        ///< since reset
  uint64_t run_cycles = 0;    ///< with a program running
  uint64_t idle_cycles = 0;   ///< with none, since the first start
  uint64_t commands = 0;      ///< that the engines have done
  uint64_t instructions = 0;  ///< scalar instructions of core programs
  uint64_t mxu_flops = 0;     ///< logical 2*M*K*N, without padding
  uint64_t hart_instructions =
      0;  ///< of the control hart (debug port of the transport; 0: unknown)
  std::vector<uint64_t>
      all;  ///< every counter that a core of the board has, in the order of spec/regs/perf.toml
  CoreTimes times;  ///< debug port of the transport; zeros: unknown
};

/// Board-wide figures. `lockstep_*` and `check_*` come from the transport's debug port.
struct BoardCounters {
  uint64_t now_cycles = 0;           ///< simulated time of the snapshot
  std::vector<CoreCounters> cores;   ///< by device
  uint64_t lockstep_tiles = 0;       ///< that went through the Verilog too
  uint64_t lockstep_semaphores = 0;  ///< values of semaphores that were compared with it
  uint64_t lockstep_transfers = 0;   ///< transfers of DMA queues that were
  uint64_t lockstep_mismatches = 0;  ///< of all these, what differs; failed assertions too
  std::string lockstep_text;    ///< first mismatch: tile, row, k, both bit patterns, replay command
  uint64_t check_findings = 0;  ///< unsynchronised accesses that SimOptions::check found
  std::vector<spec::FaultTally> faults{};  ///< on purpose (SimOptions::faults_path) that happened
  uint64_t retired_hbm_bytes = 0;   ///< of all devices, which the driver uses no more: bad memory
  std::string check_text;           ///< the first of them: commands, bytes, memory; one a line
  uint64_t late_calls = 0;          ///< calls that arrived while simulated time was passing
  uint64_t repeated_doorbells = 0;  ///< recoveries from lost doorbells
  uint64_t recoveries = 0;          ///< times that held cores were resumed
};

/// Time of the host that the simulation spent on one kind of work, summed over its threads.
struct HostWorkTime {
  std::string name;     ///< kind of work
  std::string unit;     ///< of `amount`; empty when only time is counted
  double seconds = 0;   ///< of the host
  uint64_t count = 0;   ///< times that it was done
  uint64_t amount = 0;  ///< how much of it, in `unit`
  uint64_t bytes = 0;   ///< memory that it read and wrote, where it is counted beside `amount`
};

/// What the latest data work of the simulation would take with a number of host threads: its
/// pieces, with the processor time that each took, handed out by the rules of the thread pool.
/// Caches, memory bandwidth and clocks that threads share do not count.
struct ThreadForecast {
  int threads = 1;            ///< the thread of the simulation included
  double seconds = 0;         ///< all of it
  double events_seconds = 0;  ///< of it the simulation's own thread without data work
  double wait_seconds = 0;    ///< of it that thread waited for data, with no other piece to do
  /// Of it that thread did other pieces when the one that it waited for was done.
  double late_seconds = 0;
};

/// Where cores spent the time of a program: one of its operations (SimOptions::op_times).
struct OpTime {
  std::string program;  ///< name of the executable
  std::string op;       ///< name in the graph; empty: cycles in which no command was under way
  std::string source;   ///< "file:line"; empty when unknown
  /// Of all its cores: cycles that belong to the operation. Each cycle of a step belongs to one: of
  /// those with commands under way, to that of the foremost engine (matrix units, vector unit, XLU,
  /// transfers to other cores, in, out), so that all of a program sum to run_cycles.
  uint64_t cycles = 0;
  uint64_t busy_cycles = 0;  ///< with a command of it under way, hidden ones too
  uint64_t commands = 0;     ///< that engines have done for it
};

/// Counters and profiles. Calls but counters() let no simulated time pass.
class ProfilingFacet : public virtual BoardFacet {
 public:
  /// Simulated time in core cycles.
  uint64_t now() const;
  /// Snapshot; waits for its completion. FailedPrecondition in an on_ready callback, as for all
  /// calls that wait for the board: load(), synchronize(), close().
  BoardCounters counters() const;
  /// The same from the debug port, at any moment: waits for nothing, lets no simulated time pass
  /// and changes no cycle. Zeros where the transport does not know. Of a board that broke or was
  /// closed it throws FailedPrecondition, and the next call still tells what broke it.
  BoardCounters peek() const;
  /// Instructions of each control hart so far, from the debug port: costs no simulated time. May be
  /// empty.
  std::vector<uint64_t> hart_instructions() const;
  /// Cycles of each core with a program running, as of the last program that ended; from the same
  /// port.
  std::vector<uint64_t> run_cycles() const;
  /// With SimOptions::profile, since the board was opened; from the same port. Empty otherwise.
  std::vector<HostWorkTime> profile() const;
  /// With SimOptions::profile: for each of `threads`, which are at least 1; from the same port.
  /// Empty otherwise.
  std::vector<ThreadForecast> thread_forecast(const std::vector<int>& threads) const;
  /// With SimOptions::op_times: what launches that are over spent since it was switched on, by
  /// program and operation. Empty otherwise, and after it was switched on again. No simulated time.
  std::vector<OpTime> op_times() const;
  /// With SimOptions::xprof: the profile of the steps that are over, since it was switched on or
  /// last taken, as XProf and TensorBoard read it (XSpace, a protocol buffer). Empty otherwise. No
  /// simulated time.
  std::string take_xspace() const;
  /// With SimOptions::record: the graph of the commands of that step as they ran, which `tpuboard
  /// report` reads; once, when the step is over. Empty otherwise, and for a record that goes into
  /// SimOptions::record_path. No simulated time.
  std::string take_record() const;
};

}  // namespace tpu::driver
