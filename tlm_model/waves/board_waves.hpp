// Waves of the board: every event of the probe becomes changes of signals, for one window of the
// run. The window opens at a trigger; the writer may keep cycles from before it. Which signals
// there are: board_signals.cpp; words in them: wave_texts.hpp; files for viewers: wave_views.hpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "probe/probe_set.hpp"
#include "waves/board_signals.hpp"
#include "waves/fst_process.hpp"
#include "waves/signal_tree.hpp"
#include "waves/verilog_ports.hpp"
#include "waves/wave_texts.hpp"
#include "waves/wave_trigger.hpp"

namespace tpu::model {

struct BoardWavesOptions {
  std::string path;  // FILE.fst; files for viewers are written beside it
  WaveBoard board{};
  uint64_t clock_mhz = 0;             // of the core, to give times in picoseconds
  std::vector<std::string> scopes{};  // globs of instances; none: all
  std::string trigger{};              // of the window; empty: the steps below
  uint64_t first_step = 0;            // of the board (kernel/step_counter.hpp)
  uint64_t step_count = 1;
  uint64_t for_cycles = UINT64_MAX;    // of the window behind a trigger, whichever is over first
  uint64_t for_steps = UINT64_MAX;     // the one that runs then included
  std::vector<VerilogUnit> verilog{};  // matrix units that run as Verilog, maybe only at times
  bool other_verilog = false;          // semaphores or DMA queues run as Verilog
  bool* is_open = nullptr;             // told whether the window is open; outlives the waves
  uint64_t before_cycles = 0;          // and before it; without a trigger: the last ones before the
                                       // run ends, faults, hangs or crashes
  const LaunchPrograms* programs = nullptr;  // for source lines; outlives the waves
  bool no_data = false;                      // the run computes no values
};

class BoardWaves final : public ProbeSink {
 public:
  // Throws std::runtime_error when a file cannot be created or another run writes it, for a glob
  // that matches nothing and for a text that is no trigger.
  explicit BoardWaves(const BoardWavesOptions& options);
  ~BoardWaves() override;

  void listen(ProbeSet& probes);
  void program(const ProgramEvent& event) override;
  void issue(const IssueEvent& event) override;
  void wait(const WaitEvent& event) override;
  void access(const AccessEvent& event) override;
  void flow(const FlowEvent& event) override;
  void start(const StartEvent& event) override;
  void done(const DoneEvent& event) override;
  void mark(const MarkEvent& event) override;
  void fault(const FaultEvent& event) override;
  void upset(const UpsetEvent& event) override;
  void hart(const HartEvent& event) override;
  void instruction(const InstructionEvent& event) override;
  void semaphore(const SemaphoreEvent& event) override;
  void hart_pc(const HartPcEvent& event) override;
  void device_register(const RegisterEvent& event) override;
  void non_finite(const NonFiniteEvent& event) override;
  void assertion(const AssertionEvent& event) override;

  // A cycle of the matrix unit at `path`, see VerilogPorts; dropped where it is none of those of
  // the options.
  void show_ports(const std::string& path, const MxuPorts& ports);

  // A debugger opens the window, or closes it, at this cycle; what it is told.
  std::string switch_window(bool on, uint64_t cycle);

  // Writes what is pending and closes. Empty, or what went wrong: also that the window never
  // opened.
  std::string finish();
  // Until now, where an event was to open it.
  bool never_opened() const;

 private:
  enum class Window : uint8_t { kBefore, kOpen, kAfter };
  struct Queue {
    uint32_t queued = 0;
    uint32_t in_flight = 0;
    bool waits = false;
    uint32_t running = WaveTexts::kNothing;  // the command that started last, in words
    uint32_t waiting = WaveTexts::kNothing;  // its head
  };
  struct Transfer {
    ProbeSource source;
    FlowEvent::Place from, to;
    uint64_t rate = 0;
  };
  struct Interrupts {
    uint32_t pending = 0, enable = 0;
  };
  struct Rates {  // as in FlowEvent
    uint64_t hbm_read = 0, hbm_write = 0, sent = 0, received = 0;
  };

  static constexpr uint32_t kChangesAtOnce = 1024;  // before the writer is told the time

  template <class Event>
  bool hear(const Event& event);
  void open(uint64_t cycle);
  void close(uint64_t cycle);
  void tell_open(bool open);
  void set(uint32_t signal, uint64_t cycle, uint64_t value);
  void show_queue(uint64_t cycle, uint32_t core, uint32_t unit);
  uint32_t text_of(const Queue& queue, WaveQueueState state);
  void show_operand(uint64_t cycle, const OperandSignals& signals, const AccessRange& range);
  void add_rate(const Transfer& transfer, uint64_t cycle, uint64_t rate, bool remove);
  void hold_verilog(const ProbeSource& source, uint64_t cycle);
  std::string never_opened_text() const;

  const BoardWavesOptions options_;
  SignalTree tree_;
  BoardSignals signals_;
  std::vector<VerilogPorts> verilog_;  // by options_.verilog
  WaveTrigger trigger_;
  WaveTexts texts_;
  std::unique_ptr<FstProcess> fst_;
  std::string error_;
  std::vector<uint64_t> values_;            // by signal
  std::vector<std::vector<Queue>> queues_;  // by core and spec::Queue
  std::vector<Transfer> transfers_;         // under way
  std::vector<Rates> rates_;                // by core
  std::vector<Interrupts> irqs_;            // by core
  Window window_ = Window::kBefore;
  bool opened_ = false;
  uint64_t close_at_ = UINT64_MAX;               // cycle
  std::atomic<uint64_t> end_cycle_{UINT64_MAX};  // the first behind the window
  uint64_t end_step_ = UINT64_MAX;               // the first behind the window
  uint64_t begun_ = 0;                           // steps of the board
  uint32_t active_ = 0;                          // cores inside a step
  uint64_t now_ = 0;
  uint32_t changes_ = 0;  // since the writer was told the time
};

// At simulated time: whether the event is to be shown.
template <class Event>
bool BoardWaves::hear(const Event& event) {
  if (window_ == Window::kAfter) {
    return false;
  }
  now_ = event.cycle;
  if (window_ == Window::kBefore && trigger_.hit(event)) {
    open(trigger_.begin(event.cycle));
  } else if (event.cycle >= close_at_) {
    close(close_at_);
    return false;
  }
  if (changes_ >= kChangesAtOnce) {
    changes_ = 0;
    fst_->reached(event.cycle);
  }
  return true;
}

}  // namespace tpu::model
