// Trace writers side by side.
#include "board/trace_tee.hpp"

namespace tpu::model {

TraceTee::TraceTee(const BoardOptions& options) {
  if (!options.trace_path.empty()) {
    text_ = std::make_unique<TextTraceSink>(options.trace_path);
  }
  if (!options.waves_path.empty()) {
    BoardWavesOptions waves;
    waves.path = options.waves_path;
    waves.chips = static_cast<uint32_t>(options.params.board.chips);
    waves.cores_per_chip = static_cast<uint32_t>(options.params.board.cores_per_chip);
    waves.clock_mhz = static_cast<uint64_t>(options.params.core.clock_mhz);
    waves.first_step = options.waves_first_step;
    waves.step_count = options.waves_steps;
    waves_ = std::make_unique<BoardWaves>(waves);
  }
}

std::string TraceTee::finish() {
  std::string error = text_ != nullptr ? text_->finish() : std::string();
  if (const std::string waves = waves_ != nullptr ? waves_->finish() : std::string();
      !waves.empty()) {
    error += (error.empty() ? "" : "\n") + waves;
  }
  text_.reset();
  waves_.reset();
  return error;
}

void TraceTee::command(const CommandTrace& command) {
  if (text_ != nullptr) {
    text_->command(command);
  }
  if (waves_ != nullptr) {
    waves_->command(command);
  }
}

void TraceTee::mark(uint64_t cycle, uint32_t core, uint32_t op_id, bool begin) {
  if (text_ != nullptr) {
    text_->mark(cycle, core, op_id, begin);
  }
  if (waves_ != nullptr) {
    waves_->mark(cycle, core, op_id, begin);
  }
}

void TraceTee::busy(uint64_t cycle, uint32_t core, uint32_t queue, uint8_t opcode, bool begin) {
  if (text_ != nullptr) {
    text_->busy(cycle, core, queue, opcode, begin);
  }
  if (waves_ != nullptr) {
    waves_->busy(cycle, core, queue, opcode, begin);
  }
}

void TraceTee::program(uint64_t cycle, uint32_t core, uint64_t step, bool begin) {
  if (text_ != nullptr) {
    text_->program(cycle, core, step, begin);
  }
  if (waves_ != nullptr) {
    waves_->program(cycle, core, step, begin);
  }
}

void TraceTee::hart(uint64_t cycle, uint32_t core, uint32_t pc, bool sleeping) {
  if (waves_ != nullptr) {
    waves_->hart(cycle, core, pc, sleeping);
  }
}

}  // namespace tpu::model
