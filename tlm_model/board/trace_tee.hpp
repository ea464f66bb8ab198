// Hands what the engines report to every writer that was asked for: text trace, waves.
#pragma once

#include <memory>
#include <string>

#include "board/board_host.hpp"
#include "kernel/trace.hpp"
#include "waves/board_waves.hpp"

namespace tpu::model {

class TraceTee final : public TraceSink {
 public:
  // Throws std::runtime_error when a file cannot be created.
  explicit TraceTee(const BoardOptions& options);

  bool wanted() const { return text_ != nullptr || waves_ != nullptr; }
  bool wants_harts() const { return waves_ != nullptr; }
  // Closes the files; what went wrong, or nothing.
  std::string finish();

  void command(const CommandTrace& command) override;
  void mark(uint64_t cycle, uint32_t core, uint32_t op_id, bool begin) override;
  void busy(uint64_t cycle, uint32_t core, uint32_t queue, uint8_t opcode, bool begin) override;
  void program(uint64_t cycle, uint32_t core, uint64_t step, bool begin) override;
  void hart(uint64_t cycle, uint32_t core, uint32_t pc, bool sleeping) override;

 private:
  std::unique_ptr<TextTraceSink> text_;
  std::unique_ptr<BoardWaves> waves_;
};

}  // namespace tpu::model
