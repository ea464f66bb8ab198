// Emits fused code (vpu_fused_code.hpp) with Xbyak: registers by a scan over the operations, then
// loops over rows and vectors of lanes. NaNs become canonical only where somebody can tell: where a
// value is stored as a word or read as an integer. Numbers that are known to be no subnormals are
// not flushed again.
#pragma once

#include <xbyak/xbyak.h>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "vpu/vpu_fused_code.hpp"

namespace tpu::model {

class FusedEmitter : private Xbyak::CodeGenerator {
 public:
  FusedEmitter(FusedIsa isa, std::span<const FusedOp> ops);

  /// False when the host's registers do not suffice, or the host gives no memory for code. Once.
  bool emit();
  /// Valid as long as this object.
  FusedFn code() const { return getCode<FusedFn>(); }

 private:
  using Vector = Xbyak::Xmm;  // of the width in use
  struct Facts {
    bool flushed = false;    // no subnormal
    bool canonical = false;  // no NaN but the canonical one, or one that stands for it (raw_nan)
    bool bf16 = false;       // the lower half is zero
  };
  struct Value {
    int reg = 0;
    int last_use = -1;
    bool raw_nan = true;  // nobody can tell its NaN from the canonical one
    Facts facts;
  };

  void find_uses();
  void find_facts();
  void find_raw_nans();
  Facts facts_of(uint16_t source) const;
  bool assign_registers();
  void assign_constants();

  void emit_function();
  void emit_prologue();
  void emit_next_row();
  size_t pointer_count() const;
  void emit_op(size_t index);
  bool emit_float(const FusedOp& op, Vector d);
  bool emit_integer(const FusedOp& op, Vector d);
  void emit_load(const FusedOp& op, Vector d);
  void emit_store(const FusedOp& op);
  void emit_min_max(const FusedOp& op, Vector d, bool is_max);
  void emit_compare(const FusedOp& op, Vector d);
  void emit_compare_integers(const FusedOp& op, Vector d);
  void emit_select(const FusedOp& op, Vector d);
  void emit_round(const FusedOp& op, Vector d, uint8_t mode);
  Vector emit_bf16(uint16_t source);
  Vector emit_rounded_bf16(uint16_t source);
  void store_halves(const Xbyak::Address& to, Vector from);
  void store_bytes(const Xbyak::Address& to, Vector from);
  void nan_where(Vector d, Vector a, const Xbyak::Operand& b);
  Vector flushed_source(uint16_t source, int scratch);

  bool wide() const { return isa_ == FusedIsa::kAvx512; }
  Vector vector(int number) const;
  Vector half_vector(int number) const;
  const Xbyak::Operand& constant(int number);
  Xbyak::Address constant_place(int number) const;
  const Xbyak::Operand& constant_word(uint32_t value);
  /// A source as last operand of an instruction, or in a register (a constant goes to `scratch`).
  const Xbyak::Operand& any(uint16_t source);
  Vector reg(uint16_t source, int scratch);
  Xbyak::Address memory(const FusedOp& op, size_t ahead = 0);

  FusedIsa isa_;
  std::span<const FusedOp> ops_;
  std::vector<Value> values_;
  int registers_used_ = 0;
  std::map<int, int> constant_uses_;  // by number
  std::map<int, Vector> constant_registers_;
  std::map<int, Xbyak::Address> constant_places_;
  std::map<int, Vector> value_registers_;
};

}  // namespace tpu::model
