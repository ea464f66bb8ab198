// Names, widths and enums; which events each signal lives on.
#include "waves/board_signals.hpp"

#include <initializer_list>

#include "tpu/spec/core_page_regs.hpp"

namespace tpu::model {
namespace {

namespace page = spec::core_page;
using Named = std::pair<uint64_t, std::string_view>;

constexpr uint32_t kAddressBits = 40;  // of any memory of a core

constexpr std::array<Named, 3> kMemories = {{{static_cast<uint64_t>(ProbeMemory::kVmem), "vmem"},
                                             {static_cast<uint64_t>(ProbeMemory::kSmem), "smem"},
                                             {static_cast<uint64_t>(ProbeMemory::kHbm), "hbm"}}};
constexpr std::array<Named, 4> kQueueStates = {
    {{0, "idle"}, {1, "queued"}, {2, "waits"}, {3, "runs"}}};
constexpr std::array<Named, 6> kSequencerStates = {{{0, "idle"},
                                                    {1, "runs"},
                                                    {2, "waits_semaphore"},
                                                    {3, "waits_queue"},
                                                    {4, "waits_engines"},
                                                    {5, "waits_host"}}};
constexpr std::array<Named, 1> kModes = {{{3, "machine"}}};  // the only one that the hart has
constexpr std::array<Named, 10> kFirmwareStates = {{{page::kStateReset, "reset"},
                                                    {page::kStateRom, "rom"},
                                                    {page::kStateBadImage, "bad_image"},
                                                    {page::kStateHandshake, "handshake"},
                                                    {page::kStateAbiMismatch, "abi_mismatch"},
                                                    {page::kStateReady, "ready"},
                                                    {page::kStateRun, "run"},
                                                    {page::kStateDrain, "drain"},
                                                    {page::kStateHeld, "held"},
                                                    {page::kStateDead, "dead"}}};

struct PageRegister {
  uint32_t offset;
  const char* name;
  uint32_t width;
  WaveEnum names;
};
// Of the core page: run control, rings and doorbells.
constexpr std::array<PageRegister, 11> kPageRegisters = {
    {{page::kCoreCtrl, "core_ctrl", 3, {}},
     {page::kFwState, "fw_state", 8, kFirmwareStates},
     {page::kQueueEn, "queue_en", 1, {}},
     {page::kCmdTail, "cmd_tail", 32, {}},
     {page::kCmdFetched, "cmd_fetched", 32, {}},
     {page::kCplTail, "cpl_tail", 32, {}},
     {page::kAbort, "abort", 32, {}},
     {page::kResume, "resume", 32, {}},
     {page::kEpoch, "epoch", 32, {}},
     {page::kFaultSeq, "fault_seq", 32, {}},
     {page::kCallRequest, "call_request", 32, {}}}};

// By opcode; 0 where nothing runs.
std::span<const Named> opcodes() {
  static const std::vector<Named> names = [] {
    std::vector<Named> all = {{0, "-"}};
    for (const spec::CommandInfo& info : spec::kCommands) {
      all.emplace_back(static_cast<uint64_t>(info.opcode), info.name);
    }
    return all;
  }();
  return names;
}

class Declaration {
 public:
  Declaration(const WaveBoard& board, SignalTree& tree) : board_(board), tree_(tree) {}

  BoardSignals run() {
    for (uint32_t chip = 0; chip < board_.chips; ++chip) {
      for (uint32_t core = 0; core < board_.cores_per_chip; ++core) {
        const uint32_t number = chip * board_.cores_per_chip + core;
        source_ = core_bit(number);
        add_core(core_path(board_, number) + ".");
      }
      source_ = kAllCores;
      all_.msi_pending.push_back(add("board.chip" + std::to_string(chip) + ".pcie.msi_pending", 32,
                                     {ProbeEvent::kRegister}));
    }
    return std::move(all_);
  }

 private:
  uint32_t add(const std::string& path, uint32_t width, std::initializer_list<ProbeEvent> events,
               WaveEnum names = {}) {
    const uint32_t signal = tree_.add(path, width, names);
    for (const ProbeEvent event : events) {
      all_.wanted(event) |= signal == kNoSignal ? 0 : source_;
    }
    return signal;
  }

  void add_core(const std::string& at) {
    CoreSignals core{};
    core.running = add(at + "program_running", 1, {});
    core.step = add(at + "step", 64, {});
    core.launch = add(at + "launch", 32, {});
    add_sequencer(at + "seq.", core);
    for (size_t queue = 0; queue < spec::kQueueCount; ++queue) {
      core.queues.emplace_back();
      if (has_queue(board_, queue)) {
        add_queue(at + std::string(spec::kQueueNames[queue]) + ".", queue, core.queues.back());
      }
    }
    for (uint32_t i = 0; i < board_.semaphores; ++i) {
      core.semaphores.push_back(
          add(at + "sem.sem" + std::to_string(i), 32, {ProbeEvent::kSemaphore}));
    }
    core.hbm_read_rate = add(at + "hbm.read_bytes_per_kcycle", 32, {ProbeEvent::kFlow});
    core.hbm_write_rate = add(at + "hbm.write_bytes_per_kcycle", 32, {ProbeEvent::kFlow});
    core.ici_sent_rate = add(at + "ici.sent_bytes_per_kcycle", 32, {ProbeEvent::kFlow});
    core.ici_received_rate = add(at + "ici.received_bytes_per_kcycle", 32, {ProbeEvent::kFlow});
    add_hart(at, core);
    all_.cores.push_back(std::move(core));
  }

  void add_sequencer(const std::string& at, CoreSignals& core) {
    constexpr auto kIssue = ProbeEvent::kIssue;
    constexpr auto kWait = ProbeEvent::kWait;
    core.seq_pc = add(at + "pc", 32, {kIssue, kWait, ProbeEvent::kInstruction});
    core.seq_op_id = add(at + "op_id", 32, {kIssue, kWait});
    core.seq_state = add(at + "state", 3, {kWait}, kSequencerStates);
    core.seq_wait_index = add(at + "wait_index", 16, {kWait});
    core.seq_wait_value = add(at + "wait_value", 32, {kWait});
  }

  void add_queue(const std::string& at, size_t queue, QueueSignals& q) {
    constexpr auto kIssue = ProbeEvent::kIssue;
    constexpr auto kWait = ProbeEvent::kWait;
    constexpr auto kStart = ProbeEvent::kStart;
    constexpr auto kDone = ProbeEvent::kDone;
    q.busy = add(at + "busy", 1, {kStart, kDone});
    q.state = add(at + "state", 2, {kIssue, kWait, kStart, kDone}, kQueueStates);
    q.opcode = add(at + "opcode", 8, {kStart, kDone}, opcodes());
    q.op_id = add(at + "op_id", 32, {kStart});
    q.pc = add(at + "pc", 32, {kStart});
    q.queued = add(at + "queued", 16, {kIssue, kStart});
    q.in_flight = add(at + "in_flight", 8, {kStart, kDone});
    q.wait_semaphore = add(at + "wait_semaphore", 16, {kWait});
    q.wait_value = add(at + "wait_value", 32, {kWait});
    q.reads[0] = add_operand(at + "read0_");
    const bool dma = spec::kQueues[queue].engine >= spec::Engine::kDmaIn;
    if (!dma) {
      q.reads[1] = add_operand(at + "read1_");
    }
    q.write = add_operand(at + "write_");
    if (dma) {
      q.bytes = add(at + "flow_bytes", kAddressBits, {ProbeEvent::kFlow});
      q.left = add(at + "flow_left", kAddressBits, {ProbeEvent::kFlow});
      q.rate = add(at + "flow_bytes_per_kcycle", 32, {ProbeEvent::kFlow});
    }
  }

  OperandSignals add_operand(const std::string& at) {
    constexpr auto kAccess = ProbeEvent::kAccess;
    return {.memory = add(at + "memory", 2, {kAccess}, kMemories),
            .core = add(at + "core", 8, {kAccess}),
            .address = add(at + "address", kAddressBits, {kAccess}),
            .bytes = add(at + "bytes", kAddressBits, {kAccess})};
  }

  void add_hart(const std::string& at, CoreSignals& core) {
    const auto hart = [&](const char* name, uint32_t width, WaveEnum names = {}) {
      return add(at + "hart." + name, width, {ProbeEvent::kHart}, names);
    };
    core.hart = {.pc = hart("pc", 32),
                 .wfi = hart("wfi", 1),
                 .mode = hart("mode", 2, kModes),
                 .mstatus = hart("mstatus", 32),
                 .mie = hart("mie", 32),
                 .mip = hart("mip", 32),
                 .mepc = hart("mepc", 32),
                 .mcause = hart("mcause", 32),
                 .mtval = hart("mtval", 32),
                 .mmio_address = hart("mmio_address", 32),
                 .mmio_data = hart("mmio_data", 32),
                 .mmio_write = hart("mmio_write", 1)};
    core.page.assign(0x80 / 4, kNoSignal);
    for (const PageRegister& reg : kPageRegisters) {
      core.page[reg.offset / 4] =
          add(at + "page." + reg.name, reg.width, {ProbeEvent::kRegister}, reg.names);
    }
    core.irq_pending = add(at + "irq.pending", 16, {ProbeEvent::kRegister});
    core.irq_enable = add(at + "irq.enable", 16, {ProbeEvent::kRegister});
    core.irq_line = add(at + "irq.line", 1, {ProbeEvent::kRegister});
    core.fault_code = add(at + "fault.code", 16, {ProbeEvent::kFault});
    core.fault_count = add(at + "fault.count", 32, {ProbeEvent::kFault});
  }

  const WaveBoard& board_;
  SignalTree& tree_;
  BoardSignals all_;
  CoreMask source_ = kAllCores;  // whose events the signals live on
};

}  // namespace

bool has_queue(const WaveBoard& board, size_t queue) {
  const spec::QueueInfo& info = spec::kQueues[queue];
  return info.engine != spec::Engine::kMxu || info.unit < board.mxus;
}

std::string core_path(const WaveBoard& board, size_t core) {
  return "board.chip" + std::to_string(core / board.cores_per_chip) + ".core" +
         std::to_string(core % board.cores_per_chip);
}

BoardSignals add_board_signals(const WaveBoard& board, SignalTree& tree) {
  return Declaration(board, tree).run();
}

}  // namespace tpu::model
