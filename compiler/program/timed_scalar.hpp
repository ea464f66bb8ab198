// Registers and SMEM of a sequencer in the timed machine. What a transfer wrote to SMEM is unknown;
// what is made from it too. When one core stands for all (timed_gang.hpp), registers made from the
// replica id have a value for each of them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "command/scalar_ops.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

class TimedScalars {
 public:
  // `replica`: of this core; `replicas` > 1: it stands for the replicas 0 .. replicas-1.
  TimedScalars(const spec::BoardParams& board, uint32_t replica, uint32_t cores, uint32_t replicas);

  // False when the instruction would make cores differ in more than registers.
  bool execute(const spec::ScalarInsn& insn);
  bool unknown(const spec::ScalarInsn& insn) const { return (unknown_ & sources(insn)) != 0; }
  bool varies(const spec::ScalarInsn& insn) const { return (varies_ & sources(insn)) != 0; }
  bool taken(const spec::ScalarInsn& insn) const { return spec::scalar_taken(insn, x_); }
  uint64_t value(uint8_t reg) const { return x_[reg % x_.size()]; }
  uint64_t value(uint8_t reg, uint32_t replica) const {
    return (varies_ >> reg & 1) != 0 ? replicas_[replica][reg % x_.size()] : value(reg);
  }
  bool varies(uint8_t reg) const { return (varies_ >> (reg & 31) & 1) != 0; }
  // A transfer wrote bytes [low, high) of SMEM.
  void forget(int64_t low, int64_t high);

  // Steps that can be taken back: everything since begin_trial().
  void begin_trial();
  void end_trial(bool keep);

 private:
  struct State {
    spec::ScalarRegisters x;
    uint32_t unknown, varies;
    std::vector<spec::ScalarRegisters> replicas;
  };

  static uint32_t sources(const spec::ScalarInsn& insn);
  void arithmetic(const spec::ScalarInsn& insn);
  bool memory(const spec::ScalarInsn& insn);
  void set(uint8_t rd, uint64_t value, bool unknown);
  void write_word(size_t word, int64_t value);

  static constexpr int64_t kUnknown = INT64_MIN;  // of a word of SMEM; others are 32 bit
  spec::ScalarRegisters x_{};
  uint32_t unknown_ = 0, varies_ = 0;  // bit r: register r
  std::vector<spec::ScalarRegisters> replicas_;
  std::vector<int64_t> smem_;  // words
  const uint32_t replica_, cores_;
  bool trial_ = false;
  State before_{};
  std::vector<std::pair<size_t, int64_t>> undo_;  // words of SMEM
};

}  // namespace tpu::compiler
