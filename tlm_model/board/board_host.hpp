// The board as a host sees it: the public entry of the model. A board lives on its own kernel
// thread; simulated time passes only inside read32() and run(). Calls may come from any thread and
// take turns. No SystemC types here.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernel/thread_forecast.hpp"
#include "pcie/host_memory.hpp"
#include "probe/core_time.hpp"
#include "probe/op_time.hpp"
#include "tpu/board_report.hpp"
#include "tpu/command_log.hpp"
#include "tpu/sim_options.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::exe {
struct ExecutableT;
}
namespace tpu::firmware {
struct Image;
}
namespace tpu::spec {
class Archive;
}

namespace tpu::model {

class PodStream;

struct BoardOptions {
  spec::BoardParams params;
  spec::SimOptions sim;
  // What the control harts will run, to name its places; null: not known.
  std::shared_ptr<const firmware::Image> firmware{};
  // Of a process that has a part of the boards of a pod, the way to the others; null: all are here.
  std::shared_ptr<PodStream> others{};
  // Numbers of a pod of such boards, for all of which this board is simulated
  // (spec/command/fold.hpp), without data.
  std::optional<spec::BoardParams> folded{};
};

// A text line that the firmware of a core wrote to its console.
struct ConsoleLine {
  uint32_t core = 0;
  std::string text;
};

// A posted write of a register of 32 bits.
struct RegisterWrite {
  int chip = 0;
  int bar = 0;
  uint64_t offset = 0;
  uint32_t value = 0;
};

// A run at an interrupt, while simulated time is paused.
struct PausedRun {
  std::span<const uint32_t> msi;  // by chip: vectors delivered since the run began, one bit each
  uint64_t now = 0;               // cycle
  bool quiescent = false;         // nothing is in flight
  bool has_console = false;       // text has come since the last call
};

// Why run() came back.
struct RunOutcome {
  bool quiescent = false;            // nothing is in flight: only a host call can change anything
  bool expired = false;              // the limit was over first, or interrupt() came
  std::vector<uint32_t> msi;         // by chip: vectors delivered since the last call, one bit each
  std::vector<ConsoleLine> console;  // text since the last call
};

struct CoreStats {
  uint64_t hart_instructions = 0;
  uint64_t hart_cycles = 0;
  uint32_t hart_pc = 0;
  bool hart_sleeping = false;
  uint32_t hart_ra = 0;
  uint32_t hart_sp = 0;
  std::vector<uint32_t> hart_stack;  // words from hart_sp up, some of them
  bool program_running = false;      // and where its sequencer stands:
  uint32_t program_step = 0;
  uint32_t program_pc = 0;                     // word
  uint32_t program_op = 0;                     // OP_NONE of rings.toml: unknown
  std::vector<spec::LoopPlace> program_loops;  // the outermost first
  std::string fault_text;                      // of the last fault, in the core's own words
  uint64_t fault_cycle = 0;                    // as in its record
  std::vector<uint64_t> counters;              // by index of spec/regs/perf.toml
  CoreTimes::Values times{};                   // cycles since reset, by CoreTime
};

// Time of the host for one kind of work since the board was made (kernel/host_profile.hpp).
struct HostWorkStats {
  std::string name;
  std::string unit;  // of amount
  uint64_t nanoseconds = 0;
  uint64_t count = 0;
  uint64_t amount = 0;
  uint64_t bytes = 0;  // where the unit is another
};

// Debug port: figures that are no part of the interface to a driver.
struct BoardStats {
  std::vector<CoreStats> cores;  // that are in this process, in ascending order
  uint64_t delta_cycles = 0;     // of the simulation kernel: how much it had to do
  uint64_t pod_windows = 0;      // stretches that it ran between two looks at other processes
  uint64_t pod_wait_ns = 0;      // of wall-clock time that it waited for them
  uint64_t lockstep_tiles = 0;
  uint64_t lockstep_semaphores = 0;  // values compared
  uint64_t lockstep_transfers = 0;   // of DMA queues
  uint64_t lockstep_mismatches = 0;
  std::string lockstep_text;                   // the mismatches, for people
  std::vector<spec::UnitWait> watchdog_waits;  // waits() when a watchdog ended a launch last
  uint32_t watchdog_launch = 0;                // id of that launch; 0: none
  uint64_t check_findings = 0;                 // of the happens-before checker (check)
  std::vector<HostWorkStats> profile;          // with SimOptions::profile
  std::vector<spec::FaultTally> faults;        // on purpose, that have happened
  uint64_t hbm_host_bytes = 0;  // host memory behind contents of HBM, present and past
};

// This build has no firmware to boot a board with.
class NoFirmwareError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class BoardHost {
 public:
  // Builds the board. Throws std::runtime_error for bad options and files that cannot be created,
  // NoFirmwareError, KernelTakenError for a second board in this process, std::system_error when
  // the host has no more threads.
  BoardHost(const BoardOptions& options, HostMemory& memory);
  ~BoardHost();
  BoardHost(const BoardHost&) = delete;
  BoardHost& operator=(const BoardHost&) = delete;

  // All calls throw KernelError (kernel/host_port.hpp) when the model itself broke, then and later.
  // Those in which simulated time passes are made in all processes of a pod, in the same order, and
  // throw PodLost (wire/wire.hpp) when one of them is gone.

  // Register read; simulated time passes until the response has come. Undefined offsets read all
  // ones. Of a chip in another process: lets the time of its read pass, and returns nothing useful.
  uint32_t read32(int chip, int bar, uint64_t offset);
  // Posted writes: no simulated time passes here.
  void write32(int chip, int bar, uint64_t offset, uint32_t value);
  void write_block(int chip, int bar, uint64_t offset, std::span<const std::byte> data);
  // At one simulated time. They are held back and go with the next call, which spares the way to
  // the kernel thread and back; what is wrong with them is thrown there.
  void write32_many(std::span<const RegisterWrite> writes);

  // Lets simulated time pass until at least one MSI has arrived and all events of that cycle are
  // done, or nothing is in flight, or it has taken `limit` of wall-clock time (0: none). An MSI
  // that `handler`, in the kernel thread, says it has dealt with does not end it; the handler asks
  // nothing of the board.
  using MsiHandler = std::function<bool(const PausedRun& run)>;
  RunOutcome run(std::chrono::nanoseconds limit = {}, const MsiHandler& handler = {});

  // Runs `calls` in the kernel thread, where the board's calls need no way to another thread and
  // back. It does not close the board; the limits of its runs are not kept. A debugger is served in
  // those runs alone.
  void inside(const std::function<void()>& calls);

  // As run(), but until `cycle`, although nothing may be in flight: the host is busy.
  RunOutcome run_until(uint64_t cycle, std::chrono::nanoseconds limit = {});

  // From any thread: run() comes back as soon as the present events are done; the next one does
  // when none is on its way.
  void interrupt();

  // The host begins or ends to make input ready: for figures alone (CoreTime::kInput).
  void host_prepares(bool begins);

  uint64_t now();  // core cycles
  BoardStats stats();
  // Units of all cores that are not idle, and what would end their waits.
  std::vector<spec::UnitWait> waits();
  // Text of the firmware that no run() has brought, lines without an end too; costs no simulated
  // time.
  std::vector<ConsoleLine> take_console();

  // Goes on with other options of the simulation; no launch may be under way. Matrix units, trace,
  // waves, timeline, profile and the times of operations can change. Throws std::runtime_error for
  // any other, and for options that cannot be followed; nothing has changed then. Returns what went
  // wrong with files that it completed, or nothing.
  std::string change_options(const spec::SimOptions& sim);
  // With SimOptions::check: the first findings since the last call.
  std::vector<spec::CheckFinding> take_findings();
  // What the launch runs, for those who show its operations by name; null: it is over.
  // `trace_context`: RunOptions::trace_context. Any thread; waits for nothing.
  void name_launch(uint32_t launch, std::shared_ptr<const exe::ExecutableT> program,
                   uint64_t trace_context);
  // Saves the whole board, or loads it into one that has just been built of the same numbers, which
  // has then the same bits and cycles to come. Simulated time passes only while a hart's transfer
  // is under way. With a program under way, or a board that is not new, this throws
  // spec::ArchiveError; a board whose loading failed can only be
  // closed. Not state: options of the simulation, what matrix units in lockstep have counted, text
  // of the console that no run() has brought.
  void visit_state(spec::Archive& archive);

  // With SimOptions::op_times: what was counted of a launch, all its cores together, by op id;
  // forgets it.
  std::vector<OpTime> take_op_times(uint32_t launch);

  // Keeps every command of the engines from here on, until they are taken, and with `look` bytes of
  // a memory as they are at the end of one of them. No launch may be under way.
  void log_commands(const std::optional<spec::MemoryLook>& look);
  spec::CommandLog take_commands();
  // Debug port of a control hart's address space, without simulated time: a word, registers without
  // their side effects on reads and with those of writes. False: nothing that can be read or
  // written so. Throws std::out_of_range for a core that is none.
  bool debug_read(uint32_t core, uint32_t address, uint32_t& value);
  bool debug_write(uint32_t core, uint32_t address, uint32_t value);

  // Where a debugger can connect, "127.0.0.1:1234"; empty without SimOptions::gdb.
  std::string gdb_address() const;
  // With SimOptions::profile: the data work of the latest commands with as many host threads each.
  std::vector<ThreadForecast> thread_forecast(std::span<const int> threads);
  // With SimOptions::xprof: the profile since it was switched on or last taken, an XSpace.
  std::string take_xspace();
  // With SimOptions::record: the record of that step, once it is over.
  std::string take_record();

  // Ends the simulation and completes trace and wave files. Returns what went wrong with them, or
  // nothing.
  std::string close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tpu::model
