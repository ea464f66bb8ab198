// Transport: how the driver reaches a board, and nothing more: register accesses to the BARs of
// each chip, host memory that the board reads and writes by DMA, interrupts, and simulated time
// that passes only inside run() and read32(). Implementations: null (fake cores), sim (the SystemC
// board); a program may bring its own, or wrap one of these (OpenOptions::factory).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tpu/board.hpp"
#include "tpu/board_report.hpp"
#include "tpu/command_log.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::spec {
class Archive;
}
namespace tpu::firmware {
struct Image;
}

namespace tpu::driver {

using spec::CheckFinding;
using spec::CommandPlace;
using spec::UnitWait;

/// Host memory as the board sees it.
struct HostMemory {
  virtual ~HostMemory() = default;
  /// Bytes at `iova`; empty when the range is not registered (the board sees a master abort).
  /// With `write` all of them will be written.
  virtual std::span<std::byte> span(uint64_t iova, uint64_t bytes, bool write) = 0;
  /// Whether the range is registered.
  virtual bool is_there(uint64_t iova, uint64_t bytes, bool write) {
    return span(iova, bytes, write).size() >= bytes;
  }
  /// What one chip sees, which lives as long as this: all chips see the same, unless each has a
  /// host of its own.
  virtual HostMemory& of_chip(int chip) {
    static_cast<void>(chip);
    return *this;
  }
};

/// What a board is made from.
struct TransportRequest {
  spec::BoardParams params;  ///< every number of the board
  SimOptions sim;            ///< what a transport without them cannot do, it refuses
  /// What the control harts will run, to name its places; null: not known.
  std::shared_ptr<const firmware::Image> firmware{};
  /// Numbers of a pod of such boards, for all of which one board is simulated without data; empty:
  /// the board stands for itself. Of the simulated board alone.
  std::optional<spec::BoardParams> folded{};
};

/// A text line that the firmware of a core wrote to its console.
struct ConsoleLine {
  int device = 0;    ///< whose firmware
  std::string text;  ///< without the line end
};

/// A posted write of a register.
struct RegisterWrite {
  int chip = 0;         ///< whose BAR
  int bar = 0;          ///< its number
  uint64_t offset = 0;  ///< in the BAR
  uint32_t value = 0;   ///< what is written
};

/// A run at an interrupt, while simulated time is paused.
struct PausedRun {
  std::span<const uint32_t> msi;  ///< vectors raised since it began, a bit mask for each chip
  uint64_t now = 0;               ///< simulated time in core cycles
  bool quiescent = false;         ///< nothing is in flight
  bool has_console = false;       ///< text has come since the last call
};

/// Why run() came back.
struct RunOutcome {
  bool quiescent = false;     ///< nothing is in flight: only a host call can change anything
  bool expired = false;       ///< the time of limit_run() was over first, or interrupt() came
  std::vector<uint32_t> msi;  ///< vectors raised since the last call, a bit mask for each chip
  std::vector<ConsoleLine> console;  ///< text since the last call
};

/// Where the program of a core is.
struct ProgramPlace {
  bool running = false;                  ///< between start and end of a launch
  uint64_t steps = 0;                    ///< ended by this core so far, of all launches
  uint32_t step = 0;                     ///< of the present launch
  uint32_t pc = 0;                       ///< word
  uint32_t op_id = 0;                    ///< index into the executable's ops; larger: unknown
  std::vector<spec::LoopPlace> loops{};  ///< it is in, the outermost first
};

/// Where the control hart of a core is.
struct HartPlace {
  uint32_t pc = 0;              ///< address of its next instruction
  bool sleeping = false;        ///< until an interrupt
  uint32_t ra = 0;              ///< its return address register
  uint32_t sp = 0;              ///< its stack pointer
  std::vector<uint32_t> stack;  ///< words from there up, as far as they are kept
};

/// The last fault of a core in its own words, which its fault record has no room for.
struct FaultWords {
  uint64_t cycle = 0;  ///< as in the record
  std::string text;    ///< empty: none so far
};

/// What an operation of a launch took, all cores and steps together (OpTime).
struct OpTally {
  uint32_t op_id = 0;        ///< index into the executable's ops; larger: no command was under way
  uint64_t cycles = 0;       ///< that belong to it
  uint64_t busy_cycles = 0;  ///< with a command of it under way
  uint64_t commands = 0;     ///< done for it
};

/// Debug port: read-only figures that are no part of the board's interface to a driver.
struct TransportStats {
  std::vector<uint64_t> hart_instructions;  ///< of each core; empty when unknown
  std::vector<uint64_t> run_cycles;         ///< with a program running, of each core; as above
  /// Of each core, in the order of spec/regs/perf.toml; empty when unknown.
  std::vector<std::vector<uint64_t>> counters;
  std::vector<CoreTimes> times;       ///< of each core; empty when unknown
  uint64_t lockstep_tiles = 0;        ///< that went through the Verilog too
  uint64_t lockstep_semaphores = 0;   ///< values of semaphores that were compared with it
  uint64_t lockstep_transfers = 0;    ///< transfers of DMA queues that were
  uint64_t lockstep_mismatches = 0;   ///< of all these, what differs; failed assertions too
  std::string lockstep_text;          ///< the first of them, with its replay command
  uint64_t check_findings = 0;        ///< unsynchronised accesses found (SimOptions::check)
  std::vector<HostWorkTime> profile;  ///< with SimOptions::profile
  std::vector<ProgramPlace> places;   ///< of each core; empty when unknown
  std::vector<HartPlace> harts;       ///< of each core; empty when unknown
  std::vector<FaultWords> faults;     ///< of each core; empty when unknown
  /// Host memory that contents of HBM take or have taken, which it takes again for others; empty
  /// where they do not lie in host memory.
  std::optional<uint64_t> hbm_host_bytes;
  /// TransportDebugPort::waits() as they were when a watchdog ended a launch last.
  std::vector<UnitWait> watchdog_waits;
  uint32_t watchdog_launch = 0;  ///< id of that launch; 0: none
  /// Faults on purpose that have happened, by kind and place.
  std::vector<spec::FaultTally> fault_tallies;
  std::string waits_text;  ///< what else a transport knows of what waits for what, one a line
};

/// What is known of a board beside its interface to a driver: counters, places, recorded commands.
/// Lets no simulated time pass and changes no cycle. A transport that knows none of it need not
/// override more than stats().
class TransportDebugPort {
 public:
  virtual ~TransportDebugPort() = default;

  /// The host begins or ends to make input ready: for figures alone (CoreTimes::input).
  virtual void host_prepares(bool begins) { static_cast<void>(begins); }

  /// What a launch that is about to be submitted runs, for files that show its operations by name;
  /// null: it is over. `trace_context`: RunOptions::trace_context. A transport that shows none does
  /// nothing here.
  virtual void name_launch(uint32_t launch_id,
                           const std::shared_ptr<const exe::ExecutableT>& program,
                           uint64_t trace_context) {
    static_cast<void>(launch_id);
    static_cast<void>(program);
    static_cast<void>(trace_context);
  }

  /// Figures of the debug port; no simulated time passes.
  virtual TransportStats stats() = 0;

  /// Units of all cores that are not idle, with the commands that would end their waits; no
  /// simulated time passes. Of a large pod that takes longer than stats().
  virtual std::vector<UnitWait> waits() { return {}; }

  /// With SimOptions::profile: one of each of `threads`; no simulated time passes.
  virtual std::vector<ThreadForecast> thread_forecast(const std::vector<int>& threads) {
    static_cast<void>(threads);
    return {};
  }

  /// With SimOptions::check: the first findings since the last call.
  virtual std::vector<CheckFinding> take_findings() { return {}; }

  /// Debug port of the address space of a core's control hart: a word, a register without the side
  /// effects of reading it. Empty: nothing that can be read. No simulated time passes.
  virtual std::optional<uint32_t> debug_read(int device, uint32_t address) {
    static_cast<void>(device);
    static_cast<void>(address);
    throw no_debug_port();
  }
  /// The same, written as the hart writes it. False: nothing that can be written.
  virtual bool debug_write(int device, uint32_t address, uint32_t value) {
    static_cast<void>(device);
    static_cast<void>(address);
    static_cast<void>(value);
    throw no_debug_port();
  }

  /// With SimOptions::op_times: what was counted of a launch that is over, by op; forgets it.
  virtual std::vector<OpTally> take_op_times(uint32_t launch_id) {
    static_cast<void>(launch_id);
    return {};
  }

  /// With SimOptions::xprof: the profile since it was switched on or last taken, an XSpace.
  virtual std::string take_xspace() { return {}; }

  /// Keeps every command of the engines from here on, until they are taken, and with `look` bytes
  /// of a memory as they are at the end of one of them. No launch is under way. Throws Error:
  /// InvalidArgument for a memory that is none, Unimplemented where nothing is known of commands.
  virtual void log_commands(const std::optional<spec::MemoryLook>& look) {
    static_cast<void>(look);
    throw Error(ErrorCode::kUnimplemented,
                "this transport does not record commands; use the transport 'sim'");
  }
  /// What was kept; nothing is kept any more.
  virtual spec::CommandLog take_commands() { return {}; }

  /// With SimOptions::record: the record of that step, once it is over.
  virtual std::string take_record() { return {}; }

 private:
  static Error no_debug_port() {
    return Error(ErrorCode::kUnimplemented,
                 "this transport has no debug port; the simulated board has (transport 'sim')");
  }
};

/// A connection to one board.
class Transport : public TransportDebugPort {
 public:
  /// Reads a register; simulated time passes until the response is there. Unmapped offsets read all
  /// ones.
  virtual uint32_t read32(int chip, int bar, uint64_t offset) = 0;
  /// Posted write: reaches the board after the link's delay, in order with other writes to that
  /// chip.
  virtual void write32(int chip, int bar, uint64_t offset, uint32_t value) = 0;
  /// As write32(), one after the other at the same simulated time.
  virtual void write32_many(std::span<const RegisterWrite> writes) {
    for (const RegisterWrite& write : writes) {
      write32(write.chip, write.bar, write.offset, write.value);
    }
  }
  /// As write32(), of bytes that lie together: the firmware, by BAR 2.
  virtual void write_block(int chip, int bar, uint64_t offset, std::span<const std::byte> data) = 0;

  /// Lets simulated time pass until an interrupt arrived or the board is quiescent. Throws
  /// std::exception when the model itself broke.
  virtual RunOutcome run() = 0;

  /// Told of an interrupt while simulated time is paused and the caller of run() waits in it, in
  /// whatever thread the board has. True: that was all, run() need not come back for it.
  using InterruptHandler = std::function<bool(const PausedRun& run)>;
  /// As run(), but for interrupts that `handler` has dealt with; the outcome tells them too. A
  /// transport that cannot do this comes back at each.
  virtual RunOutcome run_handling(const InterruptHandler& handler) {
    static_cast<void>(handler);
    return run();
  }

  /// As run(), but until the board's clock says `cycle`, which it reaches although nothing is in
  /// flight. Needed where the board's numbers give the host a time of its own (`host.*`); a
  /// transport that cannot do this refuses it.
  virtual RunOutcome run_until(uint64_t cycle) {
    static_cast<void>(cycle);
    throw Error(ErrorCode::kUnimplemented,
                "this transport cannot advance simulated time by itself, which "
                "host.dispatch_cycles and host.input_gbps need");
  }

  /// run() comes back after that much wall-clock time as well (0: it does not, as at the start).
  /// The board is parked then and continues with the next run(). A transport that cannot do this
  /// does nothing here; the time limit of launches is looked at when its run() comes back.
  virtual void limit_run(std::chrono::nanoseconds limit) { static_cast<void>(limit); }

  /// Runs `calls` where the calls that it makes of the board take least time: in the thread of the
  /// board, if it has one. It does not close the board; runs in it end by interrupt() alone, not by
  /// limit_run().
  virtual void inside(const std::function<void()>& calls) { calls(); }

  /// From any thread, while run() is on its way: it comes back as soon as it can, as when the time
  /// of limit_run() is over; one that has not begun yet comes back at once. A transport that cannot
  /// do this does nothing here; calls of other threads then wait for the next interrupt.
  virtual void interrupt() {}

  /// Simulated time in core cycles.
  virtual uint64_t now() = 0;

  /// Goes on with other options; no launch is under way. Throws Error: InvalidArgument for one that
  /// cannot change or be followed, Unimplemented where none can; nothing has changed then. Returns
  /// what went wrong with files that it completed, or nothing.
  virtual std::string change_sim(const SimOptions& sim) {
    static_cast<void>(sim);
    throw Error(ErrorCode::kUnimplemented,
                "this transport has no options that change while the board is open; the simulated "
                "board has (transport 'sim')");
  }

  /// Saves all state of the board, or loads it into one that has just been made and that nothing
  /// was asked of (archive.loading()); nothing is in flight. Throws std::exception; a board whose
  /// loading failed can only be closed. A transport that cannot do this refuses it.
  virtual void visit_state(spec::Archive& archive) {
    static_cast<void>(archive);
    throw Error(ErrorCode::kUnimplemented,
                "this transport has no snapshots; the simulated board has (transport 'sim')");
  }

  /// Text of the firmware that no run() has brought.
  virtual std::vector<ConsoleLine> take_console() { return {}; }

  /// Ends the board and completes its files; returns what went wrong with them, or nothing. No call
  /// comes after it.
  virtual std::string close() { return {}; }
};

/// The simulated board; null when this build has no model. A process can have one, ever: SystemC
/// has one kernel a process, and it cannot start again. Throws Error.
std::unique_ptr<Transport> make_sim_transport(const TransportRequest& request, HostMemory& memory);

/// A board without time whose launches do nothing: outputs keep what was in memory. A process can
/// have many.
std::unique_ptr<Transport> make_null_transport(const TransportRequest& request, HostMemory& memory);

}  // namespace tpu::driver
