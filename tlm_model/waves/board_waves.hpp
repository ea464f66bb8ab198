// Board-level waveforms: per core and engine queue whether a command is started and not done, the
// one that started last, its op id and the number of queued commands; per core whether a program
// runs and where the control hart stands. One FST file and a GTKWave save file beside it. Commands
// are reported when they are done, so the events of a step are collected, sorted and written at its
// end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "probe/probe_set.hpp"
#include "tpu/spec/isa.hpp"
#include "waves/fst_process.hpp"

namespace tpu::model {

struct BoardWavesOptions {
  std::string path;  // FILE.fst; FILE.gtkw is written beside it
  uint32_t chips = 4;
  uint32_t cores_per_chip = 2;
  uint32_t mxus = 2;        // of a core
  uint64_t clock_mhz = 0;   // of the core, to give times in picoseconds
  uint64_t first_step = 0;  // of the board (kernel/step_counter.hpp)
  uint64_t step_count = 1;  // steps to write
};

class BoardWaves final : public ProbeSink {
 public:
  // Throws std::runtime_error when the file cannot be created or another run writes it.
  explicit BoardWaves(const BoardWavesOptions& options);
  ~BoardWaves() override;

  void listen(ProbeSet& probes) {
    probes.add(*this, {ProbeEvent::kProgram, ProbeEvent::kDone, ProbeEvent::kHart});
  }
  void done(const DoneEvent& event) override;
  void program(const ProgramEvent& event) override;
  void hart(const HartEvent& event) override;

  // Writes what is pending and closes. Empty, or what went wrong: also that no step of the window
  // ran.
  std::string finish();

 private:
  struct Event {
    uint64_t cycle;
    uint32_t signal;
    uint32_t order;
    int64_t value;  // for counters an increment
  };
  enum class Kind : uint8_t { kBits, kText, kCount, kBusy };  // kBusy: 1 where the count is not 0
  struct Signal {
    Kind kind;
    uint32_t opcode = 0;  // of a kBusy: the signal that shows nothing where it is 0
    int64_t value = 0;
    int64_t written = -1;  // what the file shows
    bool changed = false;
  };
  struct QueueSignals {
    uint32_t busy, opcode, op_id, depth;
  };
  struct CoreSignals {
    uint32_t running, pc, sleeping;
    std::vector<QueueSignals> queues;
    uint32_t last_pc = 0;
    bool last_sleeping = false;
  };

  void declare(const BoardWavesOptions& options);
  uint32_t add_signal(std::string_view name, uint32_t width, Kind kind = Kind::kBits);
  void write_save_file(const BoardWavesOptions& options);
  void add(uint64_t cycle, uint32_t signal, int64_t value);
  void add_hart(uint64_t cycle, const CoreSignals& core);
  void write_window();
  void close();
  void change(uint32_t signal, int64_t value);
  void write_changes(uint64_t cycle);
  bool in_window(uint64_t step) const {
    return fst_ != nullptr && step >= first_step_ && step < end_step_;
  }
  // Inside a step of the window, or between two of them.
  bool recording() const {
    return active_ != 0 || (fst_ != nullptr && recorded_ && begun_ < end_step_);
  }

  std::unique_ptr<FstProcess> fst_;
  std::vector<CoreSignals> cores_;
  std::vector<Signal> signals_;
  std::vector<uint32_t> changed_;  // signals
  std::vector<Event> events_;
  const std::string path_;
  const uint64_t clock_mhz_;
  const uint64_t first_step_;
  const uint64_t end_step_;  // the first behind the window
  uint64_t begun_ = 0;       // steps of the board
  uint64_t last_cycle_ = 0;
  uint32_t active_ = 0;  // cores inside a step of the window
  bool recorded_ = false;
  std::string error_;
};

}  // namespace tpu::model
