// Machine code for runs of lane-wise instructions: each vector of lanes goes through the whole run
// in the host's registers, in place of a pass over the block for each instruction. The same bits as
// the lane code of vpu_ops.hpp; hosts without it interpret (docs/adr/0052).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tpu/spec/isa.hpp"

namespace tpu::model {

enum class FusedIsa : uint8_t { kNone, kAvx2, kAvx512 };

/// A source of a FusedOp is the index of the operation that makes the value, or this bit and the
/// number of a constant.
inline constexpr uint16_t kFusedConstant = 0x8000;
inline constexpr uint16_t kFusedNoSource = 0xffff;
inline constexpr int kFusedPointers = 64;

/// What is known of the constant of a min_f or max_f, its second source.
enum class FusedLimit : uint8_t {
  kUnknown,  // or no constant
  kPlain,    // neither NaN nor subnormal nor zero
  kZero      // +0 of a max_f
};

/// One operation; makes at most one value. `imm` makes the value of a constant.
struct FusedOp {
  uint8_t op = 0;       // spec::VpuOp
  uint8_t detail = 0;   // load, store: spec::Elem; cmp: spec::VpuCompare; min_f, max_f: FusedLimit
  uint8_t pointer = 0;  // of a load or store
  uint8_t broadcast = 0;  // load: one element for all lanes
  std::array<uint16_t, 3> source = {kFusedNoSource, kFusedNoSource, kFusedNoSource};
};

/// Operands of one call, which runs over rows of adjacent elements. Rows and pointers are spent.
struct FusedArgs {
  const void* constants;  // 64 bytes each: a word 16 times
  int64_t rows;
  int64_t lanes;  // of a row, a multiple of 16
  std::array<uint8_t*, kFusedPointers> pointers;
  std::array<int64_t, kFusedPointers> pitches;  // bytes from row to row
};
using FusedFn = void (*)(FusedArgs&);

/// True for operations that fused code can have.
bool fused_has(spec::VpuOp op);

/// Code for `ops`, kept for the process; null when there is none: for `isa` kNone, when the values
/// alive at once are more than the host's registers, when the host gives no memory for code, or
/// when there is very much of it already. The caller has seen that the host has `isa`. Needs flush
/// mode like the lane code. Thread-safe.
FusedFn fused_code(FusedIsa isa, std::span<const FusedOp> ops);

/// `isa` where this build makes code, else kNone.
FusedIsa fused_isa(FusedIsa isa);

}  // namespace tpu::model
