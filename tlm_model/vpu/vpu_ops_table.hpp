// Block functions of all instructions and their table. For the vpu_ops_*.cpp files only.
#pragma once

#include "vpu/vpu_memory_ops.hpp"

namespace tpu::model {
namespace {

// ---- lane-wise instructions. Pointers and counts are copied first: stores of lanes could change
// them for all that the compiler knows. Each lane is read before it is written and vectors ascend,
// so that a result may take the place of an operand.
template <typename Function>
inline __attribute__((always_inline)) void for_lanes(const VpuOpArgs& args, const uint32_t* rs,
                                                     int64_t pitch, Function function) {
  uint32_t* rd = args.rd;
  const int64_t pitch_d = args.pitch_d;
  const int rows = args.dense_rows;
  const int lanes = args.dense_lanes;
  for (int s = 0; s < rows; ++s, rd += pitch_d, rs += pitch) {
#pragma GCC unroll 4
    for (int i = 0; i < lanes; i += kVpuWidth) {
      store_lanes(rd + i, function(load_lanes(rs + i)));
    }
  }
}

template <U (*Op)(U)>
void unary(const VpuOpArgs& args) {
  for_lanes(args, args.rs1, args.pitch1, Op);
}

template <U (*Op)(U, U)>
void binary(const VpuOpArgs& args) {
  uint32_t* rd = args.rd;
  const uint32_t* rs1 = args.rs1;
  const uint32_t* rs2 = args.rs2;
  const int64_t pitch_d = args.pitch_d, pitch1 = args.pitch1, pitch2 = args.pitch2;
  const int rows = args.dense_rows;
  const int lanes = args.dense_lanes;
  for (int s = 0; s < rows; ++s, rd += pitch_d, rs1 += pitch1, rs2 += pitch2) {
#pragma GCC unroll 4
    for (int i = 0; i < lanes; i += kVpuWidth) {
      store_lanes(rd + i, Op(load_lanes(rs1 + i), load_lanes(rs2 + i)));
    }
  }
}

// rs1 is a constant.
template <U (*Op)(U, U)>
void binary_splat1(const VpuOpArgs& args) {
  const U a = load_lanes(args.rs1);
  for_lanes(args, args.rs2, args.pitch2, [a](U b) { return Op(a, b); });
}

// rs2 is a constant.
template <U (*Op)(U, U)>
void binary_splat2(const VpuOpArgs& args) {
  const U b = load_lanes(args.rs2);
  for_lanes(args, args.rs1, args.pitch1, [b](U a) { return Op(a, b); });
}

template <U (*Op)(U, U, U)>
void ternary(const VpuOpArgs& args) {
  uint32_t* rd = args.rd;
  const uint32_t* rs1 = args.rs1;
  const uint32_t* rs2 = args.rs2;
  const uint32_t* rs3 = args.rs3;
  const int64_t pitch_d = args.pitch_d, pitch1 = args.pitch1, pitch2 = args.pitch2,
                pitch3 = args.pitch3;
  const int rows = args.dense_rows;
  const int lanes = args.dense_lanes;
  for (int s = 0; s < rows; ++s) {
#pragma GCC unroll 4
    for (int i = 0; i < lanes; i += kVpuWidth) {
      store_lanes(rd + i, Op(load_lanes(rs1 + i), load_lanes(rs2 + i), load_lanes(rs3 + i)));
    }
    rd += pitch_d;
    rs1 += pitch1;
    rs2 += pitch2;
    rs3 += pitch3;
  }
}

template <uint32_t (*Op)(uint32_t, uint32_t)>
void scalar_binary(const VpuOpArgs& args) {
  for (int s = 0; s < args.dense_rows; ++s) {
    const int row = s * kRowWords;
    for (int i = row; i < row + args.dense_lanes; ++i) {
      args.rd[i] = Op(args.rs1[i], args.rs2[i]);
    }
  }
}

U mov(U a) { return a; }

void splat_imm(const VpuOpArgs& args) {
  uint32_t* rd = args.rd;
  const U value = T::splat_u(args.imm);
  const int rows = args.dense_rows;
  const int lanes = args.dense_lanes;
  for (int s = 0; s < rows; ++s, rd += kRowWords) {
#pragma GCC unroll 4
    for (int i = 0; i < lanes; i += kVpuWidth) {
      store_lanes(rd + i, value);
    }
  }
}

template <int Order>
U compare_f(U a, U b) {
  return compare<Order>(T::value(a), T::value(b));
}
template <int Order>
U compare_s(U a, U b) {
  return compare<Order>(T::as_signed(a), T::as_signed(b));
}
template <int Order>
U compare_u(U a, U b) {
  return compare<Order>(a, b);
}

// Of two registers, or of a register and a constant.
template <bool kSplat, U (*Op)(U, U)>
constexpr VpuOpFn kPair = kSplat ? binary_splat2<Op> : binary<Op>;

template <bool kSplat>
void op_cmp_f(const VpuOpArgs& args) {
  static constexpr VpuOpFn kByOrder[] = {kPair<kSplat, compare_f<0>>, kPair<kSplat, compare_f<1>>,
                                         kPair<kSplat, compare_f<2>>, kPair<kSplat, compare_f<3>>,
                                         kPair<kSplat, compare_f<4>>, kPair<kSplat, compare_f<5>>};
  kByOrder[args.imm](args);
}
template <bool kSplat>
void op_cmp_s(const VpuOpArgs& args) {
  static constexpr VpuOpFn kByOrder[] = {kPair<kSplat, compare_s<0>>, kPair<kSplat, compare_s<1>>,
                                         kPair<kSplat, compare_s<2>>, kPair<kSplat, compare_s<3>>,
                                         kPair<kSplat, compare_s<4>>, kPair<kSplat, compare_s<5>>};
  kByOrder[args.imm](args);
}
template <bool kSplat>
void op_cmp_u(const VpuOpArgs& args) {
  static constexpr VpuOpFn kByOrder[] = {kPair<kSplat, compare_u<0>>, kPair<kSplat, compare_u<1>>,
                                         kPair<kSplat, compare_u<2>>, kPair<kSplat, compare_u<3>>,
                                         kPair<kSplat, compare_u<4>>, kPair<kSplat, compare_u<5>>};
  kByOrder[args.imm](args);
}

// With a constant that is no NaN, no subnormal and not the zero whose sign matters, one comparison
// decides: equal operands have equal bits, or the constant is the result.
U max_plain(U a, U b) { return canonical(T::select(T::value(a) <= T::value(b), b, a)); }
U min_plain(U a, U b) { return canonical(T::select(T::value(a) >= T::value(b), b, a)); }
bool is_plain(uint32_t constant, uint32_t zero) {
  const uint32_t exponent = constant & kExponent;
  return constant == zero || (exponent != 0 && (constant & kMagnitude) <= kExponent);
}
void splat_max_f(const VpuOpArgs& args) {
  const bool plain = is_plain(args.rs2[0], 0);
  (plain ? binary_splat2<max_plain> : binary_splat2<max_f>)(args);
}
void splat_min_f(const VpuOpArgs& args) {
  const bool plain = is_plain(args.rs2[0], kSign);
  (plain ? binary_splat2<min_plain> : binary_splat2<min_f>)(args);
}

// ---- rare instructions, lane by lane
uint32_t div_u(uint32_t a, uint32_t b) { return b == 0 ? 0xffffffffu : a / b; }
uint32_t rem_u(uint32_t a, uint32_t b) { return b == 0 ? a : a % b; }
uint32_t magnitude_i(uint32_t a) { return (a & kSign) != 0 ? 0u - a : a; }
uint32_t div_s(uint32_t a, uint32_t b) {
  const uint32_t quotient = div_u(magnitude_i(a), magnitude_i(b));
  return b == 0 ? 0xffffffffu : (((a ^ b) & kSign) != 0 ? 0u - quotient : quotient);
}
uint32_t rem_s(uint32_t a, uint32_t b) {
  const uint32_t remainder = rem_u(magnitude_i(a), magnitude_i(b));
  return (a & kSign) != 0 ? 0u - remainder : remainder;
}

uint32_t pow_u(uint32_t base, uint32_t exponent) {
  uint32_t result = 1;
  for (; exponent != 0; exponent >>= 1) {
    result *= (exponent & 1u) != 0 ? base : 1u;
    base *= base;
  }
  return result;
}
uint32_t pow_s(uint32_t base, uint32_t exponent) {
  if ((exponent & kSign) == 0 || base == 1 || base == ~0u) {
    return pow_u(base, exponent);  // of -1 only the lowest bit of the exponent counts
  }
  return 0;
}

// Exact remainder by long division of the significands, 32 bits of quotient at a time.
uint32_t rem_f(uint32_t a, uint32_t b) {
  const uint32_t x = canonical_word(a) & kMagnitude;
  const uint32_t y = canonical_word(b) & kMagnitude;
  if (x >= kExponent || y > kExponent || y == 0) {
    return kNanBits;
  }
  const uint32_t sign = a & kSign;
  if (x < y) {
    return sign | x;
  }
  const auto exponent_y = static_cast<int>(y >> 23);
  int shift = static_cast<int>(x >> 23) - exponent_y;
  const uint64_t divisor = (y & 0x7fffffu) | 0x800000u;
  uint64_t rest = ((x & 0x7fffffu) | 0x800000u) % divisor;
  while (shift > 0 && rest != 0) {
    const int step = shift < 32 ? shift : 32;
    rest = (rest << step) % divisor;
    shift -= step;
  }
  if (rest == 0) {
    return sign;
  }
  const int up = __builtin_clzll(rest) - 40;  // to bit 23
  const int exponent = exponent_y - up;
  if (exponent < 1) {
    return sign;
  }
  return sign | (static_cast<uint32_t>(exponent) << 23) |
         (static_cast<uint32_t>(rest << up) & 0x7fffffu);
}

// ---- reductions
template <U (*Op)(U, U)>
void reduce_lanes(const VpuOpArgs& args) {
  for (int s = 0; s < args.rows; ++s) {
    alignas(64) uint32_t work[kRowWords + 16];
    for (int i = 0; i < kRowWords; i += kVpuWidth) {
      store_lanes(work + i, load_lanes(args.rs1 + s * kRowWords + i));
    }
    for (int i = kRowWords; i < kRowWords + 16; i += kVpuWidth) {
      store_lanes(work + i, U{});
    }
    // Words beyond `half` are computed too where half < kVpuWidth; nobody reads them.
    for (int half = kRowWords / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; i += kVpuWidth) {
        store_lanes(work + i, Op(load_lanes(work + i), load_lanes(work + i + half)));
      }
    }
    for (int i = 0; i < kRowWords; i += kVpuWidth) {
      store_lanes(args.rd + s * kRowWords + i, T::splat_u(work[0]));
    }
  }
}

template <U (*Op)(U, U)>
void reduce_sublanes(const VpuOpArgs& args) {
  const int lanes = args.flat ? kRowWords : args.lanes;
  for (int i = 0; i < lanes; i += kVpuWidth) {
    U x[8];
    for (int s = 0; s < 8; ++s) {
      x[s] = load_lanes(args.rs1 + s * kRowWords + i);
    }
    for (int half = 4; half > 0; half /= 2) {
      for (int s = 0; s < half; ++s) {
        x[s] = Op(x[s], x[s + half]);
      }
    }
    for (int s = 0; s < 8; ++s) {
      store_lanes(args.rd + s * kRowWords + i, x[0]);
    }
  }
}

constexpr size_t index_of(spec::VpuReduce reduction) { return static_cast<size_t>(reduction); }

// Of each reduction, the one whose lanes are combined by the instruction's function of that name.
struct ReductionTable {
  VpuOpFn lanes[std::size(spec::kVpuReduceNames)];
  VpuOpFn sublanes[std::size(spec::kVpuReduceNames)];
};

constexpr ReductionTable reduction_table() {
  ReductionTable table{};
#define TPU_REDUCTION(id, function)                                    \
  table.lanes[index_of(spec::VpuReduce::id)] = reduce_lanes<function>; \
  table.sublanes[index_of(spec::VpuReduce::id)] = reduce_sublanes<function>;
  TPU_VPU_REDUCTIONS(TPU_REDUCTION)
#undef TPU_REDUCTION
  return table;
}
constexpr ReductionTable kReductions = reduction_table();

void op_lred(const VpuOpArgs& args) {
  VpuOpArgs whole = args;
  whole.rows = args.flat ? 8 : args.rows;
  kReductions.lanes[args.imm](whole);
}
void op_sred(const VpuOpArgs& args) { kReductions.sublanes[args.imm](args); }

// The block function of a function on lanes, by its parameters.
template <U (*Op)(U)>
constexpr VpuOpFn block_of() {
  return unary<Op>;
}
template <U (*Op)(U, U)>
constexpr VpuOpFn block_of() {
  return binary<Op>;
}
template <U (*Op)(U, U, U)>
constexpr VpuOpFn block_of() {
  return ternary<Op>;
}
template <uint32_t (*Op)(uint32_t, uint32_t)>
constexpr VpuOpFn block_of() {
  return scalar_binary<Op>;
}

constexpr size_t kFunctionCount = std::size(spec::kVpuOps) + 1;
constexpr size_t index_of(spec::VpuOp op) { return static_cast<size_t>(op); }

// Functions of all instructions, by opcode. Those on lanes are named as the instruction.
struct FunctionTable {
  VpuOpFn of[kFunctionCount];
};

constexpr FunctionTable function_table() {
  using spec::VpuOp;
  FunctionTable table{};
  table.of[index_of(VpuOp::kLoad)] = op_load;
  table.of[index_of(VpuOp::kStore)] = op_store;
  table.of[index_of(VpuOp::kIndex)] = op_index;
  table.of[index_of(VpuOp::kScalar)] = splat_imm;
  table.of[index_of(VpuOp::kImm)] = splat_imm;
  table.of[index_of(VpuOp::kMaskid)] = op_maskid;
  table.of[index_of(VpuOp::kCmpF)] = op_cmp_f<false>;
  table.of[index_of(VpuOp::kCmpS)] = op_cmp_s<false>;
  table.of[index_of(VpuOp::kCmpU)] = op_cmp_u<false>;
  table.of[index_of(VpuOp::kLred)] = op_lred;
  table.of[index_of(VpuOp::kSred)] = op_sred;
#define TPU_LANE_OP(id, function) table.of[index_of(VpuOp::id)] = block_of<function>();
  TPU_VPU_LANE_OPS(TPU_LANE_OP)
#undef TPU_LANE_OP
  return table;
}
constexpr FunctionTable kFunctionTable = function_table();
constexpr auto& kFunctions = kFunctionTable.of;

constexpr bool has_every_function() {
  for (size_t op = 1; op < kFunctionCount; ++op) {
    if (kFunctions[op] == nullptr) {
      return false;
    }
  }
  return true;
}
static_assert(has_every_function(), "an instruction of spec/isa/vpu.toml has no function");

// Operations with a constant operand that is worth a function of its own: cheap ones, whose time is
// that of their loads and stores.
struct SplatTables {
  VpuOpFn first[kFunctionCount];
  VpuOpFn second[kFunctionCount];
};

template <U (*Op)(U, U)>
constexpr void add_splat(SplatTables& tables, spec::VpuOp op) {
  tables.first[static_cast<size_t>(op)] = binary_splat1<Op>;
  tables.second[static_cast<size_t>(op)] = binary_splat2<Op>;
}

constexpr SplatTables splat_tables() {
  using spec::VpuOp;
  SplatTables tables{};
  add_splat<add_f>(tables, VpuOp::kAddF);
  add_splat<sub_f>(tables, VpuOp::kSubF);
  add_splat<mul_f>(tables, VpuOp::kMulF);
  add_splat<min_f>(tables, VpuOp::kMinF);
  add_splat<max_f>(tables, VpuOp::kMaxF);
  add_splat<div_f>(tables, VpuOp::kDivF);
  add_splat<add_i>(tables, VpuOp::kAddI);
  add_splat<sub_i>(tables, VpuOp::kSubI);
  add_splat<mul_i>(tables, VpuOp::kMulI);
  add_splat<and_i>(tables, VpuOp::kAnd);
  add_splat<or_i>(tables, VpuOp::kOr);
  add_splat<xor_i>(tables, VpuOp::kXor);
  add_splat<shl>(tables, VpuOp::kShl);
  add_splat<shr>(tables, VpuOp::kShr);
  add_splat<sar>(tables, VpuOp::kSar);
  add_splat<min_s>(tables, VpuOp::kMinS);
  add_splat<max_s>(tables, VpuOp::kMaxS);
  add_splat<min_u>(tables, VpuOp::kMinU);
  add_splat<max_u>(tables, VpuOp::kMaxU);
  tables.second[static_cast<size_t>(VpuOp::kMinF)] = splat_min_f;
  tables.second[static_cast<size_t>(VpuOp::kMaxF)] = splat_max_f;
  tables.second[static_cast<size_t>(VpuOp::kCmpF)] = op_cmp_f<true>;
  tables.second[static_cast<size_t>(VpuOp::kCmpS)] = op_cmp_s<true>;
  tables.second[static_cast<size_t>(VpuOp::kCmpU)] = op_cmp_u<true>;
  return tables;
}
constexpr SplatTables kSplats = splat_tables();

}  // namespace
}  // namespace tpu::model
