// The instances of a board and their signals, as a wave file shows them. A signal that nobody asked
// for is kNoSignal.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "probe/events.hpp"
#include "waves/signal_tree.hpp"

namespace tpu::model {

// What of a board its waves depend on.
struct WaveBoard {
  uint32_t chips = 4;
  uint32_t cores_per_chip = 2;
  uint32_t mxus = 2;  // of a core
  uint32_t semaphores = 128;
  bool faults = false;  // on purpose happen on it
};

enum class WaveQueueState : uint8_t { kIdle, kQueued, kWaits, kRuns };
// Of the sequencer; those from kWaits on in the order of WaitEvent::For.
enum class WaveSequencerState : uint8_t { kIdle, kRuns, kWaits };

struct OperandSignals {
  uint32_t memory = kNoSignal;
  uint32_t core = kNoSignal;
  uint32_t address = kNoSignal;
  uint32_t bytes = kNoSignal;
};

struct QueueSignals {
  uint32_t busy = kNoSignal;
  uint32_t state = kNoSignal;
  uint32_t op = kNoSignal;
  uint32_t opcode = kNoSignal;
  uint32_t op_id = kNoSignal;
  uint32_t pc = kNoSignal;
  uint32_t queued = kNoSignal;
  uint32_t in_flight = kNoSignal;
  uint32_t wait_semaphore = kNoSignal;
  uint32_t wait_value = kNoSignal;
  std::array<OperandSignals, 2> reads{};
  OperandSignals write{};
  uint32_t bytes = kNoSignal;  // of a transfer
  uint32_t left = kNoSignal;
  uint32_t rate = kNoSignal;
};

struct HartSignals {
  uint32_t pc, wfi, mode, mstatus, mie, mip, mepc, mcause, mtval;
  uint32_t mmio_address, mmio_data, mmio_write;
};

struct CoreSignals {
  uint32_t running, step, launch;
  uint32_t seq_pc, seq_op_id, seq_op, seq_state, seq_wait_index, seq_wait_value;
  uint32_t fault_code, fault_count;
  uint32_t upset = kNoSignal, upset_count = kNoSignal, damage_count = kNoSignal;
  uint32_t irq_pending, irq_enable, irq_line;
  uint32_t hbm_read_rate, hbm_write_rate, ici_sent_rate, ici_received_rate;
  HartSignals hart;
  std::vector<QueueSignals> queues;  // by spec::Queue
  std::vector<uint32_t> semaphores;
  std::vector<uint32_t> page;  // by offset / 4 of spec/regs/core_page.toml
};

struct BoardSignals {
  std::vector<CoreSignals> cores;
  std::vector<uint32_t> msi_pending;  // by chip

  // Cores whose events of this kind signals need.
  CoreMask& wanted(ProbeEvent event) { return cores_wanted[static_cast<size_t>(event)]; }
  std::array<CoreMask, kProbeEvents> cores_wanted{};
};

bool has_queue(const WaveBoard& board, size_t queue);
// "board.chip0.core1"
std::string core_path(const WaveBoard& board, size_t core);

BoardSignals add_board_signals(const WaveBoard& board, SignalTree& tree);

}  // namespace tpu::model
