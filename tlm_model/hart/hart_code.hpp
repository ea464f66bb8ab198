// Host code for straight runs of the control hart's instructions, made when they have run often.
// What it computes and the cycles it takes are those of the interpreter (hart_interpret.cpp), which
// keeps all that is rare: device accesses, traps, CSRs, divisions, the end of a budget. Harts that
// run the same image share their code. docs/adr/0057-jit-for-firmware.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "hart/hart_insn.hpp"

namespace tpu::model {

// A run is at most this long; a longer one goes on in the next.
inline constexpr size_t kMostRunInsns = 32;
// Halfwords that a run's instructions may lie in.
inline constexpr size_t kMostRunHalfwords = 2 * kMostRunInsns;

enum class HartExit : uint32_t {
  kNext,    // at an instruction that has no code yet
  kSlow,    // at one that the interpreter must do
  kBudget,  // at one whose run might use the budget up before its end
};

// What code reads and leaves. Offsets are part of the code.
struct HartFrame {
  uint32_t* regs;
  uint8_t* data;               // the data memory
  const uint8_t* text;         // the memory of the instructions, for their constants
  const void* const* entries;  // by halfword of that memory: code that begins there, or miss()
  int64_t left;                // budget in hart cycles
  uint64_t retired;
  uint32_t pc;
  HartExit exit;
};

// Addresses that are part of the code too.
struct HartPlace {
  uint32_t text_base;
  uint32_t text_bytes;
  uint32_t coded_bytes;  // of the text, from its begin on: those with entries in each frame
  uint32_t data_base;
  uint32_t data_bytes;
  uint32_t taken_cycles;  // of a taken conditional branch
};

// Does the interpreter leave this instruction, or end a run with it?
bool code_has(HartOp op);
bool code_ends_with(HartOp op);

// Harts that share one run in one thread.
class HartCode {
 public:
  // Null where this build or host makes no code. A run has code from its `threshold`th time on.
  static std::unique_ptr<HartCode> make(uint8_t threshold = 16);
  virtual ~HartCode() = default;

  uint8_t threshold() const { return threshold_; }
  // That have code so far.
  virtual size_t runs() const = 0;
  // The entry where there is no code.
  virtual const void* miss() const = 0;
  // Code of the run at `pc`; null when there is no more room.
  virtual const void* run_at(const HartPlace& place, uint32_t pc,
                             std::span<const DecodedInsn> run) = 0;
  virtual void enter(HartFrame& frame, const void* entry) const = 0;

 protected:
  explicit HartCode(uint8_t threshold) : threshold_(threshold) {}

 private:
  const uint8_t threshold_;
};

}  // namespace tpu::model
