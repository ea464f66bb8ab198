// What happens in the cores of a board, one record a kind of event. Times are core cycles of the
// board. Events come in the order in which the model makes them: deterministic, causes before
// effects; (cycle, core, unit, sequence) orders them for files. Plain data; spans, walks and texts
// live for the call only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "gang/core_set.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::model {

inline constexpr int kSequencerUnit =
    spec::kQueueCount;  // number of the sequencer beside the queues
inline constexpr int kUnits = spec::kQueueCount + 1;

enum class ProbeEvent : uint8_t {
  kProgram,
  kIssue,
  kWait,
  kTake,
  kAccess,
  kFlow,
  kStart,
  kSignal,
  kDone,
  kMark,
  kFault,
  kHart,
  kHartPc,
  kInstruction,
  kSemaphore,
  kRegister,
  kNonFinite,
  kAssertion,
  kRing,
  kLog,
  kUpset,
  kTransfer,
};
inline constexpr size_t kProbeEvents = static_cast<size_t>(ProbeEvent::kTransfer) + 1;

// Cores of a board, one bit each; the last one stands for all cores from there on.
using CoreMask = uint64_t;
inline constexpr CoreMask kAllCores = ~CoreMask{0};
constexpr CoreMask core_bit(uint32_t core) { return CoreMask{1} << (core < 63 ? core : 63); }

// Who: a command of a queue, or the sequencer itself.
struct ProbeSource {
  uint32_t core = 0;
  uint32_t unit = 0;      // spec::Queue, or kSequencerUnit
  uint64_t sequence = 0;  // commands of a core are numbered from 1 in the order of their issue; of
                          // the sequencer: the last one that it issued
  uint64_t step = 0;      // of the board (kernel/step_counter.hpp)
  uint32_t pc = 0;        // word index
  uint32_t op_id = 0;
  uint8_t opcode = 0;  // of a command
};

enum class ProbeMemory : uint8_t { kVmem, kSmem, kHbm };
inline constexpr size_t kProbeMemories = 3;

// Bytes [low, low + bytes) of a memory of core `owner`.
struct AccessRange {
  uint32_t owner = 0;
  ProbeMemory memory = ProbeMemory::kVmem;
  uint64_t low = 0;
  uint64_t bytes = 0;
  bool write = false;
};
using RangeVisitor = std::function<void(const AccessRange&)>;

// A core begins or ends a step. The end also drops what is queued, and is the end of all waits.
struct ProgramEvent {
  uint64_t cycle = 0;
  uint32_t core = 0;
  spec::CoreSet gang{};
  uint32_t launch = 0;  // id
  uint32_t launch_step = 0;
  uint64_t step = 0;  // of the board
  bool begin = false;
  bool complete = false;  // at the end: `halt` was reached
  // At the begin: HBM of this core whose contents are undefined when the launch starts.
  std::span<const AccessRange> fresh{};
};

// A command enters its queue.
struct IssueEvent {
  uint64_t cycle = 0;
  ProbeSource source{};
};

// The head of a queue begins or ends to wait for a semaphore; the sequencer, to wait for a
// semaphore, a full queue, the host's answer, or at `halt` for all engines.
struct WaitEvent {
  enum class For : uint8_t { kSemaphore, kQueue, kEngines, kHost };
  uint64_t cycle = 0;
  ProbeSource source{};
  For what = For::kSemaphore;
  uint32_t index = 0;   // of the semaphore or queue, number of the host call
  uint32_t wanted = 0;  // of a semaphore
  uint32_t value = 0;   // of the semaphore at this cycle
  uint64_t since = 0;   // cycle at which the wait began
  bool begin = false;
};

// A wait is met. Those of a command come before its accesses.
struct TakeEvent {
  uint64_t cycle = 0;
  ProbeSource source{};
  uint32_t semaphore = 0;
  uint32_t threshold = 0;
  bool takes = false;  // else it was only looked at
};

// What a command that starts, or a scalar instruction, reads and writes.
struct AccessEvent {
  uint64_t cycle = 0;
  ProbeSource source{};
  std::span<const AccessRange> extents;  // the smallest range around each operand
  // Calls the visitor with each contiguous run of bytes, in the order of the accesses.
  const std::function<void(const RangeVisitor&)>& walk;
};

// A transfer asks for bandwidth, gets another share of it, or has had its last byte pass. Its
// command is done a fixed time later.
struct FlowEvent {
  enum class Phase : uint8_t { kBegin, kRate, kEnd };
  struct Place {
    uint32_t core = 0;
    ProbeMemory memory = ProbeMemory::kVmem;
  };
  uint64_t cycle = 0;
  ProbeSource source{};
  Phase phase = Phase::kBegin;
  uint64_t bytes = 0;  // in granules
  uint64_t left = 0;   // of them, rounded up
  uint64_t rate = 0;   // kRate: bytes << BandwidthShare::kFraction a cycle
  Place from{}, to{};  // kBegin; a fill comes from where it goes
};

// A command has started; its waits, accesses and flow came before.
struct StartEvent {
  uint64_t cycle = 0;
  ProbeSource source{};
  uint64_t issued = 0;
  uint64_t free_at = 0;  // the next command of the queue may start then
  uint64_t flops = 0;    // of a matmul: logical 2*M*K*N
  uint64_t held = 0;     // of a matmul onto a result in flight: it could not start before
};

// A signal is sent: visible core.semaphore_cycles later.
struct SignalEvent {
  uint64_t cycle = 0;
  ProbeSource source{};
  uint32_t to_core = 0;
  uint32_t semaphore = 0;
  uint32_t amount = 0;
};

// The results of a command are visible and its signals sent. Each start has its done, also after a
// fault, which makes commands end without signals.
struct DoneEvent {
  uint64_t cycle = 0;
  ProbeSource source{};
  uint64_t issued = 0;
  uint64_t start = 0;
  uint64_t free_at = 0;
};

// The program passes a mark; the mark's op is the source's.
struct MarkEvent {
  uint64_t cycle = 0;
  ProbeSource source{};
  bool begin = false;
};

// A fault is raised; the record of the core keeps the first of a launch. Fields as in
// fault_record of spec/formats/rings.toml.
struct FaultEvent {
  uint64_t cycle = 0;
  ProbeSource source{};
  uint16_t code = 0;
  uint32_t detail = 0;
  uint64_t address = 0;
  uint64_t length = 0;
  uint32_t slot = 0;
  uint32_t semaphore = 0;
  uint32_t wanted = 0;
  uint32_t value = 0;
  std::string_view text{};  // for people; may be empty
};

// The host DMA begins or ends to move bytes between the host and HBM in the context that calls of
// programs use. Outside of programs the firmware uses it, too.
struct TransferEvent {
  uint64_t cycle = 0;
  uint32_t core = 0;
  bool begin = false;
  AccessRange range{};  // written: they come from the host
};

// Where the control hart of a core stands: between its slices, when it falls asleep, and at each
// access to a device, which the bus has served.
struct HartEvent {
  enum class Kind : uint8_t { kRun, kSleep, kMmio };
  uint64_t cycle = 0;
  uint32_t core = 0;
  Kind kind = Kind::kRun;
  uint32_t pc = 0;
  uint32_t address = 0;  // kMmio
  uint32_t data = 0;
  bool write = false;
  uint32_t mstatus = 0;  // of kRun and kSleep, as they stand then:
  uint32_t mie = 0;
  uint32_t mip = 0;
  uint32_t mepc = 0;
  uint32_t mcause = 0;
  uint32_t mtval = 0;
};

// A control hart gets to an instruction that somebody watches (ProbeSet::watch_pc), in the slice
// that begins at this cycle.
struct HartPcEvent {
  uint64_t cycle = 0;
  uint32_t core = 0;
  uint32_t pc = 0;
};

// The sequencer executes a scalar instruction; of a command it is the IssueEvent. Those that nobody
// else sees come before simulated time has reached their cycle.
struct InstructionEvent {
  uint64_t cycle = 0;
  uint32_t core = 0;
  uint32_t pc = 0;  // word index
};

// A semaphore has another value: signals became visible, a wait took, or all were cleared.
struct SemaphoreEvent {
  uint64_t cycle = 0;
  uint32_t core = 0;
  uint32_t semaphore = 0;
  uint32_t value = 0;
};

// A register that host and hart talk through was written, or changed by itself: doorbells and ends
// of rings, interrupt sources, interrupts to the host.
struct RegisterEvent {
  enum class Block : uint8_t { kCorePage, kIrq, kChipPage };
  uint64_t cycle = 0;
  Block block = Block::kCorePage;
  uint32_t index = 0;   // of the core; kChipPage: of the chip
  uint32_t offset = 0;  // spec/regs
  uint32_t value = 0;   // that it has now
};

// A command of a matrix unit or of the vector unit has left a NaN or an infinity in VMEM: the first
// one of each kind, in the order of its results. Comes before its DoneEvent; runs without data have
// none.
struct NonFiniteEvent {
  uint64_t cycle = 0;
  ProbeSource source{};
  uint64_t address = 0;  // in VMEM
  uint32_t bits = 0;     // as f32
  bool nan = false;      // else an infinity
};

// A unit that runs as Verilog beside its model differs from it, or an assertion in it failed.
struct AssertionEvent {
  uint64_t cycle = 0;
  uint32_t core = 0;
  std::string_view path{};  // of the unit
};

// Host DMA brings entries of a command ring to a control hart, or has sent off one of a completion
// ring (spec/formats/rings.toml).
struct RingEvent {
  uint64_t cycle = 0;
  uint32_t core = 0;
  bool completion = false;
  uint64_t host = 0;                     // address of the first one
  std::span<const std::byte> entries{};  // as they crossed the link
};

// Firmware has ended a line of its log or of its console.
struct LogEvent {
  uint64_t cycle = 0;
  uint32_t core = 0;
  std::string_view text{};
};

// A fault on purpose (faults/) happens, or the board meets the damage that one has left.
struct UpsetEvent {
  uint64_t cycle = 0;
  uint32_t core = 0;  // of a chip: its first one
  bool fires = false;
  std::string_view kind{};   // "hbm"
  std::string_view place{};  // "core 3"
  std::string_view text{};   // what it does
};

}  // namespace tpu::model
