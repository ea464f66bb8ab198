// How cores reach each other over the interconnect: RemoteIf is what a core offers to its peers,
// IciIf what the network offers to a core. Writes and signals are messages of plain data, so that a
// core may lie in another process: what stands for it there sends them on. A core of the same
// process also shows its memory, and the sender's job writes there without a copy. The network
// gives path and latency.
//
// A core of another board is reached by messages alone, which take as long as the links between the
// boards (CutIf, docs/pods.md): what happens there is known here when an answer has come.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <systemc>
#include <type_traits>
#include <vector>

#include "kernel/data_order.hpp"
#include "kernel/fluid_share.hpp"
#include "kernel/hbm_if.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::model {

// What a packet of a gang carries: tag (launch id) and step of its sender.
struct GangStep {
  uint32_t tag = 0;
  uint32_t step = 0;
};

// Bytes to write into memory of a core: `levels` counted strides, outermost first, and inside them
// runs without holes.
struct RemoteWrite {
  static constexpr size_t kMaxLevels = 5;

  GangStep from;
  uint32_t from_core = 0;  // may be the receiver itself
  uint32_t to_core = 0;
  uint32_t levels = 0;
  spec::Addr address;  // in the receiver's tables; registers are already added
  int64_t low = 0;     // bytes that are touched, [low, high), relative to the address
  int64_t high = 0;
  std::array<uint64_t, kMaxLevels> count{};
  std::array<int64_t, kMaxLevels> stride{};
  uint64_t run_bytes = 0;
  uint64_t bytes = 0;  // in all
  uint64_t at = 0;     // cycle at which the last byte is there; 0: not known yet
};

struct RemoteSignal {
  GangStep from;
  uint32_t to_core = 0;
  uint32_t semaphore = 0;
  uint32_t value = 0;
  uint64_t at = 0;  // cycle of arrival
};

// The receiver's answer to a write or signal.
struct RemoteAnswer {
  enum class Status : uint32_t { kOk, kDropped, kEnded, kStray, kBadRange, kBadSlot };
  Status status = Status::kDropped;
  ResourceId bandwidth = -1;  // of the receiver's HBM, when the write goes there
  uint64_t base = 0;          // address of offset 0 of the operand in its memory
  uint64_t size = 0;          // of the memory or slot
};

static_assert(std::is_trivially_copyable_v<RemoteWrite> &&
              std::is_trivially_copyable_v<RemoteSignal> &&
              std::is_trivially_copyable_v<RemoteAnswer>);

// Memory of a receiver in the same process.
struct RemotePlace {
  uint8_t* memory = nullptr;  // VMEM or SMEM at offset 0 of the operand
  HbmIf* hbm = nullptr;
  DataOrder* order = nullptr;  // of the memory, where offset 0 has the address of the answer

  bool here() const { return memory != nullptr || hbm != nullptr; }
};

class RemoteIf : public virtual sc_core::sc_interface {
 public:
  // A write begins: its operand must lie in the memory or slot. kOk: the write is under way until
  // remote_landed(); `place` is set if the sender's job writes there itself. kDropped: the
  // gang was aborted here (counted). kEnded: this core has ended that step, so the sender is wrong
  // (counted). kStray: unknown tag (the receiver faults).
  virtual RemoteAnswer remote_open(const RemoteWrite& write, RemotePlace* place) = 0;
  // The write has arrived. `data`: its bytes in the order of the box, if remote_open() gave no
  // place; empty in runs without data, and where nothing changes.
  virtual void remote_landed(const RemoteWrite& write, std::span<const uint8_t> data) = 0;
  // A signal that arrives in this cycle; kOk, or refused like a write.
  virtual RemoteAnswer remote_signal(const RemoteSignal& signal) = 0;
  // For the watchdogs of the gang: changes with every command that did work.
  virtual uint64_t work_done() const { return 0; }
  virtual bool work_in_flight() const { return false; }
  // Where offset 0 of the write's operand lies, for those who watch.
  virtual uint64_t remote_base(const RemoteWrite& write) const {
    return static_cast<uint64_t>(write.address.offset);
  }
  // This core has sent something to another board, to which an answer comes (+1), or has it (-1).
  virtual void await_answers(int /*change*/) {}
};

// Work of the cores of a gang.
struct GangWork {
  uint64_t done = 0;  // changes with every command that did work
  bool in_flight = false;
};

// Bytes of the sender's HBM that a copy between HBMs moves.
struct CutCopy {
  bool is_there = false;
  uint64_t from = 0;  // addresses
  uint64_t to = 0;
  uint64_t bytes = 0;
};

// What a command brings to a core of another board.
struct CutDelivery {
  uint32_t from_core = 0;
  uint32_t to_core = 0;
  uint64_t at = 0;               // cycle at which it can have come; known a latency before that
  std::optional<uint64_t> flow;  // of a write: number from open()
  RemoteWrite write;
  std::vector<uint8_t> data;   // empty in runs without data, and where nothing changes
  std::function<void()> copy;  // in place of data: of a copy between HBMs, `range`
  CutCopy range;
  std::vector<RemoteSignal> signals;
};

// A link goes down on purpose.
struct LinkNews {
  uint32_t fault = 0;  // number in the fault file
  uint64_t until = 0;  // cycle; kNever: for good
};

// The board's end of the links that leave it.
class CutIf {
 public:
  virtual ~CutIf() = default;
  using Answered = std::function<void(const RemoteAnswer& answer)>;
  using Told = std::function<void(const GangWork& work)>;

  // A write begins in this cycle, of `bytes` in granules and `fixed` cycles beside those of the
  // way. The receiver looks at it when the first of them can have come, and its answer comes back.
  // Returns the number of the flow.
  virtual uint64_t open(const RemoteWrite& write, uint64_t bytes, uint64_t fixed,
                        Answered answered) = 0;
  // The same of a copy from HBM to HBM, which its owner has checked.
  virtual uint64_t open_copy(uint32_t from_core, uint32_t to_core, uint64_t bytes) = 0;
  // Lands when it and, of a write, all its bytes have come, and behind what the same core has sent
  // there before; first the data, then the signals. An answer comes to signals and copies.
  virtual void deliver(CutDelivery delivery, Answered answered) = 0;
  // How much a core has done by the time the question comes there.
  virtual void ask(uint32_t from_core, uint32_t to_core, Told told) = 0;
  // A link that leaves the chip of `core` goes down: all other boards learn of it after the latency
  // of a packet, and then call what their hear_links() has set. False there: no fault file has it.
  using Heard = std::function<bool(uint32_t from_board, const LinkNews& news)>;
  virtual void tell_link(uint32_t /*core*/, const LinkNews& /*news*/) {}
  virtual void hear_links(Heard /*heard*/) {}
};

// How links that fail on purpose treat a transfer that begins.
struct LinkPassage {
  uint64_t extra = 0;  // cycles that it takes longer
  bool lost = false;   // a link on the way is down for good:
  uint32_t from_chip = 0;
  uint32_t to_chip = 0;
};

class IciIf : public virtual sc_core::sc_interface {
 public:
  virtual uint32_t cores() const = 0;
  // Adds ports and links of the way to `flow`, x first, then y.
  virtual void add_path(uint32_t from, uint32_t to, Flow& flow) const = 0;
  // Cycles from issue to confirmed of a transfer beside its bytes' time; and of a packet without
  // data.
  virtual uint64_t data_latency(uint32_t from, uint32_t to) const = 0;
  virtual uint64_t control_latency(uint32_t from, uint32_t to) const = 0;
  // Of a packet between the root of a gang and a core of it. In a folded pod the core's twins send
  // and get one too, and all wait for the one that is furthest away.
  virtual uint64_t gang_latency(uint32_t from, uint32_t to) const {
    return control_latency(from, to);
  }
  virtual RemoteIf& peer(uint32_t core) = 0;
  // A transfer between two cores begins.
  virtual LinkPassage pass_links(uint32_t /*from*/, uint32_t /*to*/) { return {}; }
  // The same of a transfer that comes from another board, and of `count` links of its way behind
  // `first`. `longer` is called in this cycle if it takes longer by what this board alone knows.
  using Longer = std::function<void(uint64_t cycles)>;
  virtual void enter_links(uint32_t /*from*/, uint32_t /*to*/, uint32_t /*first*/,
                           uint32_t /*count*/, Longer /*longer*/) {}
  // Null: all cores lie on one board. Else the end of the links that leave this core's board, and
  // whether a core is behind them; add_path() then adds what is passed in this board.
  virtual CutIf* cut() { return nullptr; }
  virtual bool behind_cut(uint32_t /*core*/) const { return false; }
};

}  // namespace tpu::model
