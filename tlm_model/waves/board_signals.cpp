// Names, widths and enums; which events each signal lives on.
#include "waves/board_signals.hpp"

#include <initializer_list>

#include "tpu/spec/core_page_regs.hpp"

namespace tpu::model {
namespace {

namespace page = spec::core_page;
using Named = std::pair<uint64_t, std::string_view>;

constexpr uint32_t kAddressBits = 40;  // of any memory of a core

constexpr std::array<Named, 3> kMemoryNames = {{{static_cast<uint64_t>(ProbeMemory::kVmem), "vmem"},
                                                {static_cast<uint64_t>(ProbeMemory::kSmem), "smem"},
                                                {static_cast<uint64_t>(ProbeMemory::kHbm), "hbm"}}};
constexpr WaveEnum kMemories = {"memory", kMemoryNames};
constexpr std::array<Named, 4> kQueueStateNames = {
    {{0, "idle"}, {1, "queued"}, {2, "waits"}, {3, "runs"}}};
constexpr WaveEnum kQueueStates = {"queue_state", kQueueStateNames};
constexpr std::array<Named, 6> kSequencerStateNames = {{{0, "idle"},
                                                        {1, "runs"},
                                                        {2, "waits_semaphore"},
                                                        {3, "waits_queue"},
                                                        {4, "waits_engines"},
                                                        {5, "waits_host"}}};
constexpr WaveEnum kSequencerStates = {"sequencer_state", kSequencerStateNames};
// The only one that the hart has.
constexpr std::array<Named, 1> kModeNames = {{{3, "machine"}}};
constexpr WaveEnum kModes = {"hart_mode", kModeNames};
constexpr std::array<Named, 10> kFirmwareStateNames = {{{page::kStateReset, "reset"},
                                                        {page::kStateRom, "rom"},
                                                        {page::kStateBadImage, "bad_image"},
                                                        {page::kStateHandshake, "handshake"},
                                                        {page::kStateAbiMismatch, "abi_mismatch"},
                                                        {page::kStateReady, "ready"},
                                                        {page::kStateRun, "run"},
                                                        {page::kStateDrain, "drain"},
                                                        {page::kStateHeld, "held"},
                                                        {page::kStateDead, "dead"}}};
constexpr WaveEnum kFirmwareStates = {"firmware_state", kFirmwareStateNames};

struct PageRegister {
  uint32_t offset;
  const char* name;
  WaveKind kind;
};
// Of the core page: run control, rings and doorbells.
constexpr std::array<PageRegister, 11> kPageRegisters = {
    {{page::kCoreCtrl, "core_ctrl", wave_hex(3)},
     {page::kFwState, "fw_state", wave_names(8, kFirmwareStates)},
     {page::kQueueEn, "queue_en", wave_number(1)},
     {page::kCmdTail, "cmd_tail", wave_number(32)},
     {page::kCmdFetched, "cmd_fetched", wave_number(32)},
     {page::kCplTail, "cpl_tail", wave_number(32)},
     {page::kAbort, "abort", wave_number(32)},
     {page::kResume, "resume", wave_number(32)},
     {page::kEpoch, "epoch", wave_number(32)},
     {page::kFaultSeq, "fault_seq", wave_number(32)},
     {page::kCallRequest, "call_request", wave_number(32)}}};

// By opcode; 0 where nothing runs.
const WaveEnum& opcodes() {
  static const std::vector<Named> names = [] {
    std::vector<Named> all = {{0, "-"}};
    for (const spec::CommandInfo& info : spec::kCommands) {
      all.emplace_back(static_cast<uint64_t>(info.opcode), info.name);
    }
    return all;
  }();
  static const WaveEnum table = {"opcode", names};
  return table;
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
      all_.msi_pending.push_back(add("board.chip" + std::to_string(chip) + ".pcie.msi_pending",
                                     wave_hex(32), {ProbeEvent::kRegister}));
    }
    return std::move(all_);
  }

 private:
  uint32_t add(const std::string& path, WaveKind kind, std::initializer_list<ProbeEvent> events) {
    const uint32_t signal = tree_.add(path, kind);
    for (const ProbeEvent event : events) {
      all_.wanted(event) |= signal == kNoSignal ? 0 : source_;
    }
    return signal;
  }

  void add_core(const std::string& at) {
    CoreSignals core{};
    core.running = add(at + "program_running", wave_number(1), {});
    core.step = add(at + "step", wave_number(64), {});
    core.launch = add(at + "launch", wave_number(32), {});
    add_sequencer(at + "seq.", core);
    for (size_t queue = 0; queue < spec::kQueueCount; ++queue) {
      core.queues.emplace_back();
      if (has_queue(board_, queue)) {
        add_queue(at + std::string(spec::kQueueNames[queue]) + ".", queue, core.queues.back());
      }
    }
    for (uint32_t i = 0; i < board_.semaphores; ++i) {
      core.semaphores.push_back(
          add(at + "sem.sem" + std::to_string(i), wave_number(32), {ProbeEvent::kSemaphore}));
    }
    core.hbm_read_rate =
        add(at + "hbm.read_bytes_per_kcycle", wave_number(32), {ProbeEvent::kFlow});
    core.hbm_write_rate =
        add(at + "hbm.write_bytes_per_kcycle", wave_number(32), {ProbeEvent::kFlow});
    core.ici_sent_rate =
        add(at + "ici.sent_bytes_per_kcycle", wave_number(32), {ProbeEvent::kFlow});
    core.ici_received_rate =
        add(at + "ici.received_bytes_per_kcycle", wave_number(32), {ProbeEvent::kFlow});
    add_hart(at, core);
    all_.cores.push_back(std::move(core));
  }

  void add_sequencer(const std::string& at, CoreSignals& core) {
    constexpr auto kIssue = ProbeEvent::kIssue;
    constexpr auto kWait = ProbeEvent::kWait;
    core.seq_pc = add(at + "pc", wave_number(32), {kIssue, kWait, ProbeEvent::kInstruction});
    core.seq_op_id = add(at + "op_id", wave_number(32), {kIssue, kWait});
    core.seq_state = add(at + "state", wave_names(3, kSequencerStates), {kWait});
    core.seq_op = add(at + "op", wave_text(), {kIssue, kWait});
    core.seq_wait_index = add(at + "wait_index", wave_number(16), {kWait});
    core.seq_wait_value = add(at + "wait_value", wave_number(32), {kWait});
  }

  void add_queue(const std::string& at, size_t queue, QueueSignals& q) {
    constexpr auto kIssue = ProbeEvent::kIssue;
    constexpr auto kWait = ProbeEvent::kWait;
    constexpr auto kStart = ProbeEvent::kStart;
    constexpr auto kDone = ProbeEvent::kDone;
    q.busy = add(at + "busy", wave_number(1), {kStart, kDone});
    q.state = add(at + "state", wave_names(2, kQueueStates), {kIssue, kWait, kStart, kDone});
    q.op = add(at + "op", wave_text(), {kIssue, kWait, kStart, kDone});
    q.opcode = add(at + "opcode", wave_names(8, opcodes()), {kStart, kDone});
    q.op_id = add(at + "op_id", wave_number(32), {kStart});
    q.pc = add(at + "pc", wave_number(32), {kStart});
    q.queued = add(at + "queued", wave_number(16), {kIssue, kStart});
    q.in_flight = add(at + "in_flight", wave_number(8), {kStart, kDone});
    q.wait_semaphore = add(at + "wait_semaphore", wave_number(16), {kWait});
    q.wait_value = add(at + "wait_value", wave_number(32), {kWait});
    q.reads[0] = add_operand(at + "read0_");
    const bool dma = spec::kQueues[queue].engine >= spec::Engine::kDmaIn;
    if (!dma) {
      q.reads[1] = add_operand(at + "read1_");
    }
    q.write = add_operand(at + "write_");
    if (dma) {
      q.bytes = add(at + "flow_bytes", wave_number(kAddressBits), {ProbeEvent::kFlow});
      q.left = add(at + "flow_left", wave_number(kAddressBits), {ProbeEvent::kFlow});
      q.rate = add(at + "flow_bytes_per_kcycle", wave_number(32), {ProbeEvent::kFlow});
    }
  }

  OperandSignals add_operand(const std::string& at) {
    constexpr auto kAccess = ProbeEvent::kAccess;
    return {.memory = add(at + "memory", wave_names(2, kMemories), {kAccess}),
            .core = add(at + "core", wave_number(8), {kAccess}),
            .address = add(at + "address", wave_hex(kAddressBits), {kAccess}),
            .bytes = add(at + "bytes", wave_number(kAddressBits), {kAccess})};
  }

  void add_hart(const std::string& at, CoreSignals& core) {
    const auto hart = [&](const char* name, WaveKind kind) {
      return add(at + "hart." + name, kind, {ProbeEvent::kHart});
    };
    core.hart = {.pc = hart("pc", wave_hex(32)),
                 .wfi = hart("wfi", wave_number(1)),
                 .mode = hart("mode", wave_names(2, kModes)),
                 .mstatus = hart("mstatus", wave_hex(32)),
                 .mie = hart("mie", wave_hex(32)),
                 .mip = hart("mip", wave_hex(32)),
                 .mepc = hart("mepc", wave_hex(32)),
                 .mcause = hart("mcause", wave_hex(32)),
                 .mtval = hart("mtval", wave_hex(32)),
                 .mmio_address = hart("mmio_address", wave_hex(32)),
                 .mmio_data = hart("mmio_data", wave_hex(32)),
                 .mmio_write = hart("mmio_write", wave_number(1))};
    core.page.assign(0x80 / 4, kNoSignal);
    for (const PageRegister& reg : kPageRegisters) {
      core.page[reg.offset / 4] = add(at + "page." + reg.name, reg.kind, {ProbeEvent::kRegister});
    }
    core.irq_pending = add(at + "irq.pending", wave_hex(16), {ProbeEvent::kRegister});
    core.irq_enable = add(at + "irq.enable", wave_hex(16), {ProbeEvent::kRegister});
    core.irq_line = add(at + "irq.line", wave_number(1), {ProbeEvent::kRegister});
    core.fault_code = add(at + "fault.code", wave_number(16), {ProbeEvent::kFault});
    core.fault_count = add(at + "fault.count", wave_number(32), {ProbeEvent::kFault});
    if (board_.faults) {
      core.upset = add(at + "fault.on_purpose", wave_text(), {ProbeEvent::kUpset});
      core.upset_count = add(at + "fault.on_purpose_count", wave_number(32), {ProbeEvent::kUpset});
      core.damage_count = add(at + "fault.damage_count", wave_number(32), {ProbeEvent::kUpset});
    }
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
