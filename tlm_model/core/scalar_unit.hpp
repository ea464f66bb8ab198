// Scalar registers of a sequencer and its way to SMEM. A timing-only run does not know what data
// would make of them: registers made from data read as 0 and are marked.
#pragma once

#include <cstdint>

#include "command/scalar_ops.hpp"
#include "core/program.hpp"
#include "core/unknown_words.hpp"
#include "file/archive.hpp"
#include "kernel/local_memory.hpp"

namespace tpu::model {

struct FaultInfo;

class ScalarUnit {
 public:
  // `unknown_words`: of timing-only runs, else null.
  void connect(LocalMemory& smem, UnknownWords* unknown_words) {
    smem_ = &smem;
    unknown_words_ = unknown_words;
  }
  // A program starts.
  void start() {
    x_ = {};
    unknown_ = 0;
  }
  void clear_memory();
  void visit_state(spec::Archive& archive) { archive(x_, unknown_); }

  const spec::ScalarRegisters& registers() const { return x_; }
  void set(uint8_t rd, uint64_t value) {
    if (rd != 0) {
      x_[rd] = value;
      unknown_ &= ~(uint32_t{1} << rd);
    }
  }
  void set_unknown(uint8_t rd) { unknown_ |= (uint32_t{1} << rd) & ~uint32_t{1}; }
  bool any_unknown() const { return unknown_ != 0; }
  bool is_unknown(uint8_t rs) const { return (unknown_ >> rs & 1) != 0; }
  bool depends_on_unknown(const spec::ScalarInsn& insn) const;
  // Where a packet goes decides how long it takes.
  bool knows_peers(const DecodedCommand& command) const;

  // An access of lds32, lds64 or sts32.
  struct Access {
    uint64_t address;
    uint64_t bytes;
    bool write;
  };
  Access access(const spec::ScalarInsn& insn) const;
  bool in_memory(const Access& access) const {
    return access.address <= smem_->bytes() && access.bytes <= smem_->bytes() - access.address;
  }
  // What the fault of an access outside of SMEM says.
  void describe(const spec::ScalarInsn& insn, const Access& access, FaultInfo& info) const;
  void perform(const spec::ScalarInsn& insn, const Access& access);

 private:
  bool words_known(const Access& access) const;
  void mark_words(const Access& access, bool unknown);

  LocalMemory* smem_ = nullptr;
  UnknownWords* unknown_words_ = nullptr;
  spec::ScalarRegisters x_{};
  uint32_t unknown_ = 0;  // registers made from data
};

}  // namespace tpu::model
