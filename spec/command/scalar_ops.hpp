// Meaning of the sequencer's register-only instructions (spec/isa/scalar.toml): no memory, no time,
// no SystemC.
#pragma once

#include <array>
#include <cstdint>

#include "tpu/spec/isa.hpp"

namespace tpu::spec {

using ScalarRegisters = std::array<uint64_t, 32>;

// Value that an arithmetic instruction writes to rd.
uint64_t scalar_result(const ScalarInsn& insn, const ScalarRegisters& x);

enum class ScalarClass : uint8_t { kArithmetic, kBranch, kOther };
ScalarClass scalar_class(ScalarOp op);

// A branch or jump is taken.
bool scalar_taken(const ScalarInsn& insn, const ScalarRegisters& x);

}  // namespace tpu::spec
