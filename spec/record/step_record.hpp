// Record of one step of a gang: the graph of its commands as they ran, each with what it waited
// for, what it signalled and what it moved, and what the sequencers did between. The model writes
// it (tlm_model/timeline/record_sink.hpp), reports read it (analysis/). As bytes: magic
// with the version, the fields in order as an x86-64 host has them, CRC-32C of all before it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "file/archive.hpp"
#include "tpu/spec/board_params.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::spec {

/// A file that is no record, or a damaged one; the text says why.
class RecordError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Most commands of a record: 1 GB.
inline constexpr uint64_t kMostRecordedCommands = uint64_t{1} << 23;
inline constexpr uint32_t kNoRecordedOp = UINT32_MAX;

enum class RecordedMemory : uint8_t { kVmem, kSmem, kHbm, kNone };

/// A wait or signal of a command; amount 0: none.
struct SemaphoreUse {
  uint32_t amount = 0;
  uint16_t core = 0;  // of the semaphore
  uint8_t semaphore = 0;
  uint8_t takes = 0;  // of a wait: subtracts the amount
};

struct RecordedCommand {
  uint64_t issued = 0, start = 0, free_at = 0, done = 0;
  uint64_t held = 0;      // not to start before, for a result in flight; 0: no such
  uint64_t flow_end = 0;  // of a transfer: its last byte has passed
  uint64_t bytes = 0;     // of a transfer, in granules
  uint64_t flops = 0;     // of a matmul
  uint32_t pc = 0;
  uint32_t op_id = 0;
  std::array<SemaphoreUse, 2> wait{}, signal{};
  uint16_t from_core = 0, to_core = 0;  // of a transfer
  RecordedMemory from = RecordedMemory::kNone, to = RecordedMemory::kNone;
  uint8_t queue = 0;
  uint8_t opcode = 0;

  bool transfers() const { return to != RecordedMemory::kNone; }
  bool works() const { return opcode != static_cast<uint8_t>(Opcode::kNop); }
  bool remote() const { return queue == static_cast<uint8_t>(Queue::kDmaRemote); }
};

/// What a sequencer does that others see, or that waits for others.
struct SequencerItem {
  enum class Kind : uint64_t { kIssue, kTake, kSignal, kHost, kHalt };
  uint64_t arrived = 0;  // the sequencer has reached it
  uint64_t went = 0;     // and goes on
  uint32_t index = 0;    // kIssue: of the command; kTake, kSignal: semaphore
  uint32_t amount = 0;   // kTake, kSignal
  Kind kind = Kind::kIssue;
};

/// Between HBM and the host, for a call of the program.
struct HostTransfer {
  uint64_t begin = 0, end = 0;
  uint64_t bytes = 0;
  uint64_t to_host = 0;  // or from it
};

struct RecordedCore {
  uint32_t core = 0;
  uint64_t begin = 0, end = 0;  // of its step
  std::vector<RecordedCommand> commands{};
  std::vector<SequencerItem> items{};
  std::vector<HostTransfer> host{};  // one after the other

  void visit_state(Archive& archive) { archive(core, begin, end, commands, items, host); }
};

struct RecordedOp {
  std::string name{}, file{};  // empty: unknown
  uint32_t line = 0;

  void visit_state(Archive& archive) { archive(name, file, line); }
};

/// Bytes that hold something from `cycle` on: what is written, or was before the step, and is still
/// to be read.
struct LiveBytes {
  uint64_t cycle = 0;
  uint64_t bytes = 0;
};

/// An array of the program between operations.
struct RecordedArray {
  uint64_t bytes = 0;
  uint32_t op = kNoRecordedOp;  // for which it was made
  std::string type{};           // "f32[8,512]"

  void visit_state(Archive& archive) { archive(bytes, op, type); }
};

/// Most faults of a record.
inline constexpr size_t kMostRecordedFaults = 1000;

/// A fault on purpose (docs/faults.md) that happened in the step, or damage that the board met.
struct RecordedFault {
  uint64_t cycle = 0;
  uint32_t core = 0;   // of a chip, link or board: its first one
  uint8_t damage = 0;  // or a fault
  std::string kind{};  // "hbm"
  std::string place{}, text{};

  void visit_state(Archive& archive) { archive(cycle, core, damage, kind, place, text); }
};

struct StepRecord {
  std::string program{};
  std::vector<std::string> board{};  // "section.key=value", all of them
  uint64_t step = 0;                 // of the board
  uint64_t left_out = 0;  // commands beyond kMostRecordedCommands; the rest is empty then
  std::vector<RecordedOp> ops{};
  std::vector<std::string> notes{};     // of the compiler, such as what turned update sharding off
  std::vector<RecordedFault> faults{};  // in the order of their cycles, no more than the most
  std::vector<RecordedCore> cores{};
  std::vector<LiveBytes> vmem{}, hbm{};  // of the first core
  // HBM that the program holds on a core.
  uint64_t argument_bytes = 0, result_bytes = 0, constant_bytes = 0, scratch_bytes = 0;
  // Temporaries in HBM at the time when they have most bytes, and the operation that runs then.
  std::vector<RecordedArray> peak{};
  uint32_t peak_op = kNoRecordedOp;

  uint64_t begin() const;  // of the first core to begin
  uint64_t end() const;    // of the last one to end
  void visit_state(Archive& archive) {
    archive(program, board, step, left_out, ops, notes, faults, cores, vmem, hbm, argument_bytes,
            result_bytes, constant_bytes, scratch_bytes, peak, peak_op);
  }
};

std::string write_record(StepRecord record);
/// Whether a file begins as records do.
bool is_record(std::span<const std::byte> bytes);
/// Throws RecordError; all indices of what is returned are in range.
StepRecord read_record(std::span<const std::byte> bytes);

/// Every number of a board as an override, and back. board_of() throws RecordError.
std::vector<std::string> board_texts(const BoardParams& board);
BoardParams board_of(const StepRecord& record);

}  // namespace tpu::spec
