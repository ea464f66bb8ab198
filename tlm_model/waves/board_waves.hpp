// Board-level waveforms: per core and engine queue the busy bit, the running command, its op id and
// the number of queued commands; per core whether a program runs. One FST file and a GTKWave save
// file beside it. Commands are reported when they are done, so the events of a step are collected,
// sorted and written at its end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernel/trace.hpp"
#include "tpu/spec/isa.hpp"
#include "waves/fst_process.hpp"

namespace tpu::model {

struct BoardWavesOptions {
  std::string path;  // FILE.fst; FILE.gtkw is written beside it
  uint32_t chips = 4;
  uint32_t cores_per_chip = 2;
  uint64_t clock_mhz = 0;   // of the core, to give times in picoseconds
  uint64_t first_step = 0;  // steps are counted over the whole run, from 0
  uint64_t step_count = 1;  // steps to write
};

class BoardWaves final : public TraceSink {
 public:
  // Throws std::runtime_error when the file cannot be created.
  explicit BoardWaves(const BoardWavesOptions& options);
  ~BoardWaves() override;

  void command(const CommandTrace& command) override;
  void program(uint64_t cycle, uint32_t core, bool begin) override;

  // Value of the firmware's program counter, sampled by the control hart.
  void hart(uint64_t cycle, uint32_t core, uint32_t pc, bool sleeping);

  // Writes what is pending and closes. Empty, or what went wrong.
  std::string finish();

 private:
  struct Event {
    uint64_t cycle;
    uint32_t signal;
    uint32_t order;
    int64_t value;  // bits; for depth an increment
  };
  struct QueueSignals {
    uint32_t busy, opcode, op_id, depth;
  };
  struct CoreSignals {
    uint32_t running, pc, sleeping;
    std::vector<QueueSignals> queues;
  };

  void declare(const BoardWavesOptions& options);
  void write_save_file(const BoardWavesOptions& options);
  void add(uint64_t cycle, uint32_t signal, int64_t value);
  void write_window();
  bool open() const { return fst_ != nullptr && step_ >= first_step_ && step_ < last_step_; }

  std::unique_ptr<FstProcess> fst_;
  std::vector<CoreSignals> cores_;
  std::vector<uint8_t> is_depth_;   // by signal
  std::vector<uint8_t> is_opcode_;  // by signal
  std::vector<int64_t> value_;      // last written, by signal
  std::vector<Event> events_;
  uint64_t clock_mhz_;
  uint64_t first_step_;
  uint64_t last_step_;
  uint64_t step_ = 0;
  uint64_t last_cycle_ = 0;
  uint32_t running_ = 0;  // cores inside a program
  std::string error_;
};

}  // namespace tpu::model
