// Emits host code for runs of the control hart's instructions (hart_code.hpp) with Xbyak. The
// hart's registers stay in memory, so that a run can be left anywhere. In code: rbp the frame, rbx
// the registers, r13 the entries, r14 the data memory, r12 what is left of the budget, r15 retired
// instructions.
#pragma once

#include <xbyak/xbyak.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "hart/hart_code.hpp"

namespace tpu::model {

class HartEmitter : public HartCode, private Xbyak::CodeGenerator {
 public:
  explicit HartEmitter(uint8_t threshold);

  size_t runs() const override { return made_.size(); }
  const void* miss() const override { return miss_; }
  const void* run_at(const HartPlace& place, uint32_t pc,
                     std::span<const DecodedInsn> run) override;
  void enter(HartFrame& frame, const void* entry) const override { enter_(&frame, entry); }

 private:
  using EnterFn = void (*)(HartFrame*, const void*);
  // Code of a run that is reached seldom, behind all of the rest.
  struct Way {
    enum class Kind : uint8_t { kTaken, kText, kSlow, kBudget };
    Kind kind;
    Xbyak::Label from;
    Xbyak::Label back;
    uint32_t pc;
    uint64_t cycles;
    size_t retired;
    DecodedInsn insn;
  };

  void emit_frame_code();
  void emit_run(std::span<const DecodedInsn> run);
  void emit(const DecodedInsn& insn);
  void emit_computation(const DecodedInsn& insn);
  void emit_product(const DecodedInsn& insn);
  void emit_less(const DecodedInsn& insn, bool is_signed, bool immediate);
  void emit_shift(const DecodedInsn& insn);
  void emit_address(const DecodedInsn& insn);
  void emit_load(const DecodedInsn& insn);
  void emit_store(const DecodedInsn& insn);
  void emit_branch(const DecodedInsn& insn);
  void emit_jalr(const DecodedInsn& insn);
  void emit_way(Way& way);
  void emit_text_load(Way& from);
  void load_bytes(HartOp op, const Xbyak::Reg64& memory);
  void check_place(uint32_t base, uint32_t bytes, uint32_t size, Xbyak::Label& outside);
  void charge(uint64_t cycles, size_t retired);
  void go_on_at(uint32_t target);
  Way& way(Way::Kind kind, const DecodedInsn& insn);

  Xbyak::Address reg(uint8_t number) const { return dword[rbx + sizeof(uint32_t) * number]; }
  Xbyak::Address frame(size_t offset) const { return ptr[rbp + offset]; }

  EnterFn enter_ = nullptr;
  const void* miss_ = nullptr;
  Xbyak::Label miss_label_;
  Xbyak::Label slow_label_;
  Xbyak::Label budget_label_;
  std::unordered_map<std::string, const void*> made_;  // by place, address and instructions

  // Of the run that is being emitted: what it has cost before the present instruction.
  HartPlace place_{};
  uint32_t pc_ = 0;
  uint64_t cycles_ = 0;
  size_t retired_ = 0;
  std::vector<std::unique_ptr<Way>> ways_;
};

}  // namespace tpu::model
