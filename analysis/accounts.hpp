// Where the time of a recorded step went. Of each core each cycle of the step belongs to one kind:
// with something under way to an engine and an operation (spec/record/op_spans.hpp), otherwise to
// what the core waits for; so the cycles of all kinds sum to the step on every core.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "analysis/retime.hpp"
#include "record/step_record.hpp"

namespace tpu::driver {

enum class TimeKind : uint8_t {
  kMxu,
  kVpu,
  kXlu,
  kLinkBytes,    // a transfer to another core: its bytes pass
  kLinkLatency,  // they have passed
  kHbmBytes,     // the same of HBM
  kHbmLatency,
  kLocal,  // a transfer inside on-chip memory
  // Nothing is under way:
  kIssue,      // the sequencer's instructions
  kSemaphore,  // a signal inside of a core
  kControl,    // a command without work, and the way of its signal
  kPeer,       // what another core does
  kHost,       // the answer of the host
  kSkew,       // the core has not begun, or has ended
  kWait,       // any of those but the last one, until find_causes() tells which
};
inline constexpr size_t kTimeKinds = static_cast<size_t>(TimeKind::kWait) + 1;
inline constexpr std::array<std::string_view, kTimeKinds> kTimeKindNames = {
    "matrix units",   "vector unit",         "XLU",
    "links: bytes",   "links: latency",      "HBM: bytes",
    "HBM: latency",   "on-chip copies",      "sequencer issues",
    "semaphores",     "control packets",     "waits for other cores",
    "waits for host", "gang starts or ends", "waits"};
using KindCycles = std::array<uint64_t, kTimeKinds>;

struct OpAccount {
  KindCycles cycles{};  // of all cores
  uint64_t busy = 0;    // with a command under way, hidden ones too
  uint64_t commands = 0, flops = 0;
  uint64_t hbm_read = 0, hbm_written = 0, link_bytes = 0;
  // Of its transfers to other cores: cycles with one in progress, those of them in which an engine
  // computes, those of the others in which the core copies for another operation, and cycles in
  // which nothing is in progress and the core waits for the operation.
  uint64_t link_busy = 0, link_hidden = 0, link_beside = 0, link_waits = 0;

  uint64_t total() const;
  void add(const OpAccount& other);
};

/// Cycles of a core with nothing under way.
struct Gap {
  static constexpr uint32_t kEnd = UINT32_MAX;  // of the core's step
  uint64_t cycles = 0;
  uint32_t ender = kEnd;  // the command that starts then
};

/// Transfers between HBM and the host, for calls of the program. `busy`: cycles with one in
/// progress; `hidden`: those of them in which an engine computes, `beside`: those of the others in
/// which the core copies.
struct HostAccount {
  uint64_t to_host_bytes = 0, from_host_bytes = 0;
  uint64_t busy = 0, hidden = 0, beside = 0;
};

struct CoreAccount {
  KindCycles cycles{};
  std::vector<Gap> gaps{};                         // whose causes are to be found
  std::array<uint64_t, spec::kQueueCount> busy{};  // by queue
  uint64_t flops = 0;
  uint64_t hbm_bytes = 0;  // of its own commands
  HostAccount host{};
};

/// A link or port, and what passed it.
struct LinkAccount {
  uint32_t chip = 0;
  bool y = false, up = true;
  uint64_t bytes = 0;
};

struct StepAccount {
  uint64_t cycles = 0;  // of the step: from the first begin to the last end
  std::vector<CoreAccount> cores;
  std::map<uint32_t, OpAccount> ops;
  std::vector<uint64_t> chip_hbm_bytes;
  std::vector<LinkAccount> links;
};

/// Part of a path through the step, on core `core` of the record.
struct PathPiece {
  uint32_t core = 0;
  uint64_t begin = 0, end = 0;
  TimeKind kind = TimeKind::kSkew;
  uint32_t op = spec::kNoRecordedOp;
};

/// With its waits as kWait.
StepAccount account(const spec::StepRecord& record, unsigned threads);
/// What they were for. `timing`: retime() of the record without a change.
void find_causes(const spec::StepRecord& record, const StepTiming& timing, StepAccount& step);

/// What the step's end waited for, from the beginning on: pieces that follow each other.
std::vector<PathPiece> critical_path(const spec::StepRecord& record, const StepTiming& timing);

}  // namespace tpu::driver
