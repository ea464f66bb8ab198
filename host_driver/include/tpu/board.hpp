// Board: opens a board over a transport, boots its cores and hands out devices, memory and
// programs. Copies of a Board share it; the last handle to go (of the board, its buffers and its
// programs) closes it. All calls may come from any thread; calls of one board take effect one after
// the other, at the board's present time.
//
// Every call on an empty handle throws InvalidArgument. After close() every call but those that
// describe the board throws FailedPrecondition; after the board broke, the first of them throws
// what broke it and all others Unavailable. A call that throws has changed nothing.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tpu/debug_facet.hpp"
#include "tpu/executable.hpp"
#include "tpu/memory_facet.hpp"
#include "tpu/profiling_facet.hpp"
#include "tpu/program_facet.hpp"
#include "tpu/sim_options.hpp"
#include "tpu/snapshot_facet.hpp"

namespace tpu::driver {

class Transport;
struct HostMemory;
struct TransportRequest;

/// Makes the connection to a board (transport.hpp); the memory outlives it.
using TransportFactory =
    std::function<std::unique_ptr<Transport>(const TransportRequest&, HostMemory&)>;

/// Options of the simulated board (sim_options.hpp).
using spec::SimOptions;

/// What Board::open() opens, and how.
struct OpenOptions {
  std::string preset = "v3_8";         ///< preset or path of a board file
  std::vector<std::string> overrides;  ///< "section.key=value"
  std::string transport = "sim";       ///< "sim": the simulated board; "null": fake cores
  TransportFactory factory;            ///< used instead of `transport` when set

  /// Processes of this host that share the boards of a pod, each with a simulation of its own.
  /// Bits and cycles are those of one process. 1: all boards are in this process.
  int board_processes = 1;

  /// unix:PATH or tcp:HOST:PORT of a worker (`tpuboard serve`), with the bits and cycles of a board
  /// here; several, by commas, have parts of a pod, as have the ranks of mpirun for mpi:. Or
  /// vfio-user:FOLDER or vfio:[ADDRESS,..] of PCI functions, with its bits. Empty: it is here.
  std::string connect;
  std::string connect_token;  ///< file with the token of the worker; empty: it needs none
  /// File of certificates (PEM) that the worker is known by, which turns TLS on; empty: no TLS.
  std::string connect_ca;
  /// Seconds to wait for a board that others have; then, and with 0 at once, ResourceExhausted.
  double connect_wait = 0;
  /// Chips of the worker's board that the program leases, as "0,1": a rectangle of the torus. The
  /// program has a board of these alone, numbered from 0. Empty: all chips.
  std::string connect_chips;

  /// Host memory for transfers under way, at least 64 KiB. Larger arrays go through it in pieces.
  uint64_t staging_bytes = uint64_t{256} << 20;

  SimOptions sim;  ///< of the simulated board

  /// Seconds of wall-clock time that a launch may run on the board without ending a step; then it
  /// ends with Timeout. 0: any time. Empty: 60, or any time when `sim.mxu` names units that are
  /// Verilog.
  std::optional<double> time_limit;

  /// Seconds of wall-clock time that a launch may run on the board without ending a step until a
  /// line says where it is, and again after as long: its operation with source line, iterations of
  /// its loops, simulated time. One line at a time for the whole board. 0, and with `sim.gdb`:
  /// none. It changes nothing else.
  double progress_seconds = 0;
  /// Takes these lines, in the thread that makes simulated time pass; it must not throw and not
  /// call the board. Empty: standard error.
  std::function<void(const std::string& line)> progress;

  /// JSON file that is written when a launch hangs (deadlock, watchdog, time limit): what waits for
  /// whom, with queue heads, operations and source lines. Empty: none.
  std::string hang_report;

  /// Events become ready, and on_ready() callbacks run, although nobody waits: a thread of the
  /// board's own lets time pass once no call has come for 100 us. A caller that waits lets it pass
  /// itself. At which simulated time calls take effect then depends on the host; bits never do.
  /// What is in flight when the process exits ends with Cancelled.
  bool completion_thread = false;

  /// A file that Board::save_snapshot() made: the board continues from there instead of booting.
  /// Its numbers and `sim.no_data` are as they were then; all else may differ.
  std::string snapshot;

  std::vector<std::byte> firmware;  ///< flat image; empty: the one that is built in
  /// Firmware of the user's own, an ELF file for control harts, in place of the built-in one.
  std::string firmware_file;
  /// Takes what the firmware of a core prints, a line a call; called without locks, by the thread
  /// that makes simulated time pass; it must not throw and not call the board. Empty: standard
  /// error, as "[TPU:3 firmware] text".
  std::function<void(int device, const std::string& line)> console;
};

/// A core of the board, as programs and buffers name it.
struct DeviceInfo {
  int id = 0;                     ///< TPU:id
  int chip = 0;                   ///< function id of the PCIe endpoint
  int core = 0;                   ///< core of the chip
  int x = 0;                      ///< coordinates of the chip in the torus
  int y = 0;                      ///< the other one
  uint64_t hbm_bytes = 0;         ///< all of the core
  uint64_t hbm_used = 0;          ///< by buffers and programs, in ranges of 512 bytes
  uint64_t hbm_peak = 0;          ///< most that was in use at a time since the board was opened
  uint64_t hbm_largest_free = 0;  ///< largest array that fits
  uint64_t hbm_limit = 0;         ///< most that buffers and programs can have together
  uint64_t hbm_ranges = 0;        ///< that buffers and programs have
  uint64_t hbm_ranges_ever = 0;   ///< that they have had since the board was opened
  uint64_t hbm_largest_ever = 0;  ///< largest of these, in bytes
};

/// What Board::close() does with launches that are not over: waits for them, or ends them.
enum class CloseMode : uint8_t { kDrain, kCancel };

/// An open board, or an empty handle. Its calls are those of its facets, and those below.
class Board : public MemoryFacet,
              public ProgramFacet,
              public ProfilingFacet,
              public DebugFacet,
              public SnapshotFacet {
 public:
  Board() = default;                         ///< an empty handle
  Board(const Board&) = default;             ///< shares the board
  Board& operator=(const Board&) = default;  ///< shares the other board, and drops its own
  /// Leaves an empty handle behind.
  Board(Board&& other) noexcept : BoardFacet(std::move(other.impl_)) {}
  /// Leaves an empty handle behind.
  Board& operator=(Board&& other) noexcept {
    impl_ = std::move(other.impl_);
    return *this;
  }
  ~Board() = default;
  /// Boots all cores. Throws InvalidArgument (options, board file), Unimplemented (this build has
  /// no such transport), FailedPrecondition (a second simulated board in one process; chips,
  /// firmware and driver that do not belong together), ResourceExhausted (staging memory),
  /// Unavailable (a chip that does not answer), Internal (a core that does not boot). A snapshot
  /// that is none, damaged, of another version or board is InvalidArgument.
  static Board open(const OpenOptions& options = {});

  // Facets: the calls about one subject, for code that needs no more.

  const MemoryFacet& memory() const { return *this; }        ///< arrays on cores
  const ProgramFacet& programs() const { return *this; }     ///< loading
  const ProfilingFacet& profiling() const { return *this; }  ///< times and counters
  const DebugFacet& debug_port() const { return *this; }     ///< control harts
  const SnapshotFacet& snapshots() const { return *this; }   ///< the board in a file

  // What the board is; readable after close() too.

  /// Cores with the present use of their memory. Lets no simulated time pass.
  std::vector<DeviceInfo> devices() const;
  const std::string& name() const;  ///< of the board file: "v3_8"
  double clock_hz() const;          ///< core cycles a second
  uint64_t hash() const;            ///< of what compiled programs depend on
  /// Peak matmul operations of one core and cycle.
  uint64_t peak_flops_per_cycle() const;

  /// An event for RunOptions::after and the like, which the caller sets.
  HostEvent make_event() const;

  /// How the board is simulated.
  SimOptions sim() const;
  /// Goes on with other options: `mxu`, `trace_path`, `waves_*`, `timeline_*`,
  /// `xprof*`, `record*` and `op_times` can change, once
  /// everything that was submitted is over, which this waits for. Throws InvalidArgument for any
  /// other and for options that cannot be followed, Unimplemented (a transport that cannot do
  /// this); nothing has changed then. Throws FailedPrecondition when a trace or waves that this
  /// ends could not be completed or show nothing, or lockstep has compared nothing; the options
  /// have changed then.
  void change_sim(const SimOptions& sim) const;
  /// Goes on with another OpenOptions::time_limit, once everything that was submitted is over,
  /// which this waits for. Throws InvalidArgument for a negative one; nothing has changed then.
  void change_time_limit(std::optional<double> seconds) const;
  /// Waits until everything that was submitted is over; errors stay with their events. What comes
  /// after a HostEvent is over only when that has been set.
  void synchronize() const;
  /// As synchronize(), for at most that much wall-clock time; then it throws Timeout, and
  /// everything continues as before. Zero takes what is there. Like Event::wait_for() it parks the
  /// board where it is.
  void synchronize_for(std::chrono::nanoseconds timeout) const;

  /// Ends the use of the board; called by the last handle with kCancel when not called before.
  /// kDrain: waits for what was submitted, but not for HostEvents: what comes after one that is
  /// not set ends with Cancelled. kCancel: launches that run are aborted, those after them do not
  /// start; all end with Cancelled. Throws FailedPrecondition when a trace or waves could not be
  /// completed or show nothing; the board is closed then, too. A second call does nothing; one
  /// beside the first returns with it, and with kCancel ends what that waits for.
  void close(CloseMode mode = CloseMode::kDrain) const;

 private:
  friend struct Access;
  explicit Board(std::shared_ptr<BoardImpl> impl) : BoardFacet(std::move(impl)) {}
};

}  // namespace tpu::driver
