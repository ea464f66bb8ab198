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

#include "tpu/executable.hpp"
#include "tpu/sim_options.hpp"

namespace tpu::exe {
struct ExecutableT;
}

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
  std::string transport = "sim";       ///< "sim": the simulated board; "null": a firmware double
  TransportFactory factory;            ///< used instead of `transport` when set
  /// Host memory for transfers under way, at least 64 KiB. Larger arrays go through it in pieces.
  uint64_t staging_bytes = uint64_t{256} << 20;

  SimOptions sim;  ///< of the simulated board

  /// Seconds of host time that a launch may run on the board without ending a step; then it ends
  /// with Timeout. 0: any time. Empty: 60, or any time when `sim.mxu` names units that are Verilog.
  std::optional<double> time_limit;

  /// Seconds of host time that a launch may run on the board without ending a step until a line
  /// says where it is, and again after as long: its operation with source line, iterations of its
  /// loops, simulated time. One line at a time for the whole board. 0, and with `sim.gdb`: none. It
  /// changes nothing else.
  double progress_seconds = 0;
  /// Takes these lines, in the thread that makes board time pass; it must not throw and not call
  /// the board. Empty: standard error.
  std::function<void(const std::string& line)> progress;

  /// JSON file that is written when a launch hangs (deadlock, watchdog, time limit): who waits for
  /// whom, with queue heads, operations and source lines. Empty: none.
  std::string hang_report;

  /// Events become ready, and on_ready() callbacks run, although nobody waits: a thread of the
  /// board's own lets time pass once no call has come for 100 us. A caller who waits lets it pass
  /// himself. At which board time calls take effect then depends on the host; bits never do. What
  /// is in flight when the process exits ends with Cancelled.
  bool completion_thread = false;

  /// A file that Board::save_snapshot() made: the board goes on from there instead of booting. Its
  /// numbers and `sim.no_data` are as they were then; all else may differ.
  std::string snapshot;

  std::vector<std::byte> firmware;  ///< flat image; empty: the one that is built in
  /// Firmware of the user's own, an ELF file for control harts, in place of the built-in one.
  std::string firmware_file;
  /// Takes what the firmware of a core prints, a line a call; called without locks, by the thread
  /// that makes board time pass; it must not throw and not call the board. Empty: standard error,
  /// as "[TPU:3 firmware] text".
  std::function<void(int device, const std::string& line)> console;
};

/// What a snapshot keeps for its user: handles and texts by name.
struct SnapshotItems {
  std::map<std::string, Array> arrays;         ///< live; their contents are the board's
  std::map<std::string, Executable> programs;  ///< as they are loaded
  std::map<std::string, std::string> notes;    ///< anything of the caller's own
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
  uint64_t now_cycles = 0;           ///< board time of the snapshot
  std::vector<CoreCounters> cores;   ///< by device
  uint64_t lockstep_tiles = 0;       ///< that went through the Verilog too
  uint64_t lockstep_semaphores = 0;  ///< values of semaphores that were compared with it
  uint64_t lockstep_transfers = 0;   ///< transfers of DMA queues that were
  uint64_t lockstep_mismatches = 0;  ///< of all these, what differs; failed assertions too
  std::string lockstep_text;    ///< first mismatch: tile, row, k, both bit patterns, replay command
  uint64_t check_findings = 0;  ///< unsynchronised accesses that SimOptions::check found
  std::string check_text;       ///< the first of them: commands, bytes, memory; one a line
  uint64_t late_calls = 0;      ///< calls that arrived while board time was passing
  uint64_t repeated_doorbells = 0;  ///< recoveries from lost doorbells
  uint64_t recoveries = 0;          ///< times that held cores were resumed
};

/// Host time that the simulation spent on one kind of work, summed over its threads.
struct HostWorkTime {
  std::string name;     ///< kind of work
  std::string unit;     ///< of `amount`; empty when only time is counted
  double seconds = 0;   ///< host time
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

/// What Board::close() does with launches that are not over: waits for them, or ends them.
enum class CloseMode : uint8_t { kDrain, kCancel };

/// An open board, or an empty handle.
class Board {
 public:
  Board() = default;
  /// Boots all cores. Throws InvalidArgument (options, board file), Unimplemented (this build has
  /// no such transport), FailedPrecondition (a second simulated board in one process; chips,
  /// firmware and driver that do not belong together), ResourceExhausted (staging memory),
  /// Unavailable (a chip that does not answer), Internal (a core that does not boot). A snapshot
  /// that is none, damaged, of another version or board is InvalidArgument.
  static Board open(const OpenOptions& options = {});

  /// False for an empty handle; still true after close().
  bool valid() const { return impl_ != nullptr; }

  // What the board is; readable after close() too.

  /// Cores with the present use of their memory. Lets no board time pass.
  std::vector<DeviceInfo> devices() const;
  const std::string& name() const;  ///< of the board file: "v3_8"
  double clock_hz() const;          ///< core cycles a second
  uint64_t hash() const;            ///< of what compiled programs depend on
  /// Peak matmul operations of one core and cycle.
  uint64_t peak_flops_per_cycle() const;

  /// Loads a program from a file or from bytes and waits until it is there. A program for one core
  /// goes to `device`, others to the cores for which they were compiled. Throws InvalidArgument for
  /// a file that cannot be read or is damaged, or a program for another board, ResourceExhausted
  /// when HBM is used up, or program ids by what has been launched.
  Executable load(const std::string& path, int device = 0) const;
  /// The same from the bytes of such a file. `file`: the program that `tpuboard run` would take for
  /// them, which texts name that say how to run it again; empty: not known.
  Executable load(std::span<const std::byte> bytes, int device = 0,
                  const std::string& file = {}) const;
  /// As above, on `devices` in the order of the program's partitions (empty: as compiled), and
  /// without waiting for the board: launches come behind the load, and fail when it fails. A
  /// program of one core runs on any device, others on the cores for which they were compiled.
  Executable load(std::span<const std::byte> bytes, const std::vector<int>& devices) const;
  /// The same of a program in memory as the compiler makes it, which nobody changes any more and
  /// which is not copied. It may be loaded on many groups of devices.
  Executable load(std::shared_ptr<const exe::ExecutableT> executable,
                  const std::vector<int>& devices) const;

  // Memory. They throw InvalidArgument for a device, type, shape or view that is none, and
  // ResourceExhausted when HBM has no room; buffers of other boards are InvalidArgument.

  /// Uploads; the bytes are copied before the call returns, with strides straight from where they
  /// lie. An array that does not fit into the staging memory goes in pieces, and the call returns
  /// when the last of them has found room.
  Buffer put(int device, const HostView& host) const;
  /// The same of bytes that come later: those of `bytes`, which has the array's size, when all of
  /// `after` are ready; nobody writes them from then on. The buffer fails with what of these fails.
  /// Waits as zeros() does.
  Buffer put(int device, DType dtype, const Shape& shape,
             std::shared_ptr<const std::vector<std::byte>> bytes,
             const std::vector<Event>& after) const;
  /// Fills with zero bits. Waits only for room: in the ring, and in HBM that handles already gone
  /// are about to give back.
  Buffer zeros(int device, DType dtype, const Shape& shape) const;
  /// Copies to new memory of `device`, behind the events in `after`: within a core through its DMA,
  /// to another one over the links between the chips, without the host. Waits as
  /// zeros() does. Throws FailedPrecondition when `source` was donated or discarded.
  Buffer copy(const Buffer& source, int device, const std::vector<Event>& after = {}) const;
  /// copy() to the core on which `source` is.
  Buffer clone(const Buffer& source) const;
  /// The same array on the first `count` devices (0: all).
  Array replicate(const HostView& host, int count = 0) const;
  /// Dimension `dim` cut into equal parts over the first `count` devices (0: all).
  Array shard(const HostView& host, int count = 0, size_t dim = 0) const;

  /// An event for RunOptions::after and the like, which the caller sets.
  HostEvent make_event() const;

  /// Board time in core cycles.
  uint64_t now() const;
  /// Snapshot; waits for its completion. FailedPrecondition in an on_ready callback, as for all
  /// calls that wait for the board: load(), synchronize(), close().
  BoardCounters counters() const;
  /// The same from the debug port, at any moment: waits for nothing, lets no board time pass and
  /// changes no cycle. Zeros where the transport does not know. Of a board that broke or was closed
  /// it throws FailedPrecondition, and the next call still tells what broke it.
  BoardCounters peek() const;
  /// Instructions of each control hart so far, from the debug port: costs no board time. May be
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
  /// With SimOptions::op_times: what launches that are over spent since it was switched on, by
  /// program and operation. Empty otherwise, and after it was switched on again. No board time.
  std::vector<OpTime> op_times() const;
  /// With SimOptions::xprof: the profile of the steps that are over, since it was switched on or
  /// last taken, as XProf and TensorBoard read it (XSpace, a protocol buffer). Empty otherwise. No
  /// board time.
  std::string take_xspace() const;
  /// Debug port of a control hart: a register by its name in docs/registers.md, "seq.STATE" or
  /// "hostdma.STATUS[2]", or a word of its memories by address, "0x20000000"; without the side
  /// effects of reading. No board time. Throws InvalidArgument for a device or place that is none
  /// or cannot be read, Unimplemented (the transport).
  uint32_t peek_word(int device, const std::string& place) const;
  /// The same, written as the hart writes it, with all effects: whoever does that should know what
  /// the firmware thinks of it.
  void poke_word(int device, const std::string& place, uint32_t value) const;
  /// With SimOptions::record: the graph of the commands of that step as they ran, which `tpuboard
  /// report` reads; once, when the step is over. Empty otherwise, and for a record that goes into
  /// SimOptions::record_path. No board time.
  std::string take_record() const;
  /// Waits until everything that was submitted is over; errors stay with their events. What comes
  /// behind a HostEvent is over only when that has been set.
  void synchronize() const;
  /// Saves the whole board, once everything that was submitted is over; no time passes beside that.
  /// The file is replaced in one step. A board that is opened from it has the same bits and cycles,
  /// in any process and on any host; buffers and programs that are not in `items` are gone there.
  /// Throws InvalidArgument (`items` of another board or not live), FailedPrecondition (a launch
  /// waits for an event, a batch or the host; the file cannot be written), ResourceExhausted (the
  /// disk is full), Unimplemented (the transport); the board goes on and the old file stays then.
  void save_snapshot(const std::string& path, const SnapshotItems& items = {}) const;
  /// Of a board that was opened from a snapshot: its items, once. Empty otherwise.
  SnapshotItems take_snapshot_items() const;
  /// As synchronize(), for at most that much host time; then it throws Timeout, and everything goes
  /// on as before. Zero takes what is there. Like Event::wait_for() it parks the board where it is.
  void synchronize_for(std::chrono::nanoseconds timeout) const;

  /// Ends the use of the board; called by the last handle with kCancel when not called before.
  /// kDrain: waits for what was submitted, but not for HostEvents: what comes behind one that is
  /// not set ends with Cancelled. kCancel: launches that run are aborted, those behind them do not
  /// start; all end with Cancelled. Throws FailedPrecondition when a trace or waves could not be
  /// completed or show nothing; the board is closed then, too. A second call does nothing; one
  /// beside the first returns with it, and with kCancel ends what that waits for.
  void close(CloseMode mode = CloseMode::kDrain) const;

 private:
  friend struct Access;
  explicit Board(std::shared_ptr<BoardImpl> impl) : impl_(std::move(impl)) {}
  Executable load(std::shared_ptr<const exe::ExecutableT> executable, const std::string& file,
                  const std::vector<int>& devices, bool wait) const;
  std::shared_ptr<BoardImpl> impl_;
};

}  // namespace tpu::driver
