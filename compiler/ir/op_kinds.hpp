// The op kinds of the graph: StableHLO names without version, in groups. One row per kind:
// X(enumerator, name, attribute struct, operands or -1 for any, results or -1, regions or -1,
//   op that messages name, or "": the StableHLO op of that name,
//   element types that it takes (Takes), or Own: a rule in verify_*.cpp,
//   operands that the result is linear in (LinearIn), other traits (namespace trait),
//   instructions of the vector unit: (f32 and bf16, signed, unsigned, i1); kNo where none exists).
// op_traits.hpp explains the columns. Switches over kinds name the groups that share a branch, as
// in TPU_CASES(MATRIX, CALL), so that the compiler finds a new kind; a `default` throws, or says in
// a comment what becomes of other kinds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tpu::compiler {

// clang-format off
// without operands
#define TPU_SOURCE_KINDS(X) \
  X(kConstant, "constant", ConstantAttrs, 0, 1, 0, "", Own, None, kFolds | kUnrolls, ()) \
  X(kIota, "iota", DimAttrs, 0, 1, 0, "", Own, None, kFolds | kUnrolls, ()) \
  X(kPartitionId, "partition_id", NoAttrs, 0, 1, 0, "", Own, None, kNone, ()) \
  X(kReplicaId, "replica_id", NoAttrs, 0, 1, 0, "", /* import makes it partition_id */ \
    Own, None, kNone, ())
// elementwise, one operand
#define TPU_UNARY_KINDS(X) \
  X(kAbs, "abs", NoAttrs, 1, 1, 0, "", \
    Own, None, kCheap | kWraps | kKeepsFinite, (kAbsF, kAbsI, kMov)) \
  X(kCbrt, "cbrt", NoAttrs, 1, 1, 0, "", FloatsOrComplex, None, kNone, (kCbrtF)) \
  X(kCeil, "ceil", NoAttrs, 1, 1, 0, "", Floats, None, kNone, (kCeilF)) \
  X(kConvert, "convert", NoAttrs, 1, 1, 0, "", Own, Sometimes, kCheap, ()) \
  X(kCosine, "cosine", NoAttrs, 1, 1, 0, "", FloatsOrComplex, None, kNone, (kCosF)) \
  X(kErf, "erf", NoAttrs, 1, 1, 0, "chlo.erf", /* internal: the composite chlo.erf */ \
    Floats, None, kNone, (kErfF)) \
  X(kClz, "count_leading_zeros", NoAttrs, 1, 1, 0, "", Integers, None, kNone, (kNo, kClz, kClz)) \
  X(kExp, "exponential", NoAttrs, 1, 1, 0, "", FloatsOrComplex, None, kNone, (kExpF)) \
  X(kExpm1, "exponential_minus_one", NoAttrs, 1, 1, 0, "", \
    FloatsOrComplex, None, kNone, (kExpm1F)) \
  X(kFloor, "floor", NoAttrs, 1, 1, 0, "", Floats, None, kNone, (kFloorF)) \
  X(kImag, "imag", NoAttrs, 1, 1, 0, "", /* gone after the pass `split_complex` */ \
    Own, None, kNone, ()) \
  X(kIsFinite, "is_finite", NoAttrs, 1, 1, 0, "", Own, None, kNone, ()) \
  X(kLog, "log", NoAttrs, 1, 1, 0, "", FloatsOrComplex, None, kNone, (kLogF)) \
  X(kLog1p, "log_plus_one", NoAttrs, 1, 1, 0, "", FloatsOrComplex, None, kNone, (kLog1pF)) \
  X(kLogistic, "logistic", NoAttrs, 1, 1, 0, "", FloatsOrComplex, None, kNone, (kLogisticF)) \
  X(kNegate, "negate", NoAttrs, 1, 1, 0, "", \
    Numbers, First, kCheap | kWraps | kKeepsFinite, (kNegF, kNegI, kNegI)) \
  X(kNot, "not", NoAttrs, 1, 1, 0, "", Bits, None, kCheap | kWraps, (kNo, kNot, kNot)) \
  X(kPopcnt, "popcnt", NoAttrs, 1, 1, 0, "", Integers, None, kNone, (kNo, kPopcnt, kPopcnt)) \
  X(kReal, "real", NoAttrs, 1, 1, 0, "", /* gone after the pass `split_complex` */ \
    Own, None, kNone, ()) \
  X(kRoundAfz, "round_nearest_afz", NoAttrs, 1, 1, 0, "", Floats, None, kNone, (kRoundAfzF)) \
  X(kRoundEven, "round_nearest_even", NoAttrs, 1, 1, 0, "", Floats, None, kNone, (kRoundRneF)) \
  X(kRsqrt, "rsqrt", NoAttrs, 1, 1, 0, "", FloatsOrComplex, None, kNone, (kRsqrtF)) \
  X(kSign, "sign", NoAttrs, 1, 1, 0, "", Numbers, None, kNone, (kSignF, kSignI)) \
  X(kSine, "sine", NoAttrs, 1, 1, 0, "", FloatsOrComplex, None, kNone, (kSinF)) \
  X(kSqrt, "sqrt", NoAttrs, 1, 1, 0, "", FloatsOrComplex, None, kNone, (kSqrtF)) \
  X(kTan, "tan", NoAttrs, 1, 1, 0, "", FloatsOrComplex, None, kNone, (kTanF)) \
  X(kTanh, "tanh", NoAttrs, 1, 1, 0, "", FloatsOrComplex, None, kNone, (kTanhF)) \
  X(kReducePrecision, "reduce_precision", ReducePrecisionAttrs, 1, 1, 0, "", \
    Floats, None, kNone, ()) \
  X(kBitcastConvert, "bitcast_convert", NoAttrs, 1, 1, 0, "", Own, None, kNone, ())
// elementwise, two operands
#define TPU_BINARY_KINDS(X) \
  X(kAdd, "add", NoAttrs, 2, 1, 0, "", \
    Any, FirstTwo, kCheap | kWraps | kReducer, (kAddF, kAddI, kAddI, kOr)) \
  X(kAnd, "and", NoAttrs, 2, 1, 0, "", Bits, None, kCheap | kReducer, (kNo, kAnd, kAnd, kAnd)) \
  X(kAtan2, "atan2", NoAttrs, 2, 1, 0, "", FloatsOrComplex, None, kNone, (kAtan2F)) \
  X(kCompare, "compare", CompareAttrs, 2, 1, 0, "", Own, None, kCheap, ()) \
  X(kComplex, "complex", NoAttrs, 2, 1, 0, "", /* gone after the pass `split_complex` */ \
    Own, None, kNone, ()) \
  X(kDivide, "divide", NoAttrs, 2, 1, 0, "", Numbers, Sometimes, kWraps, (kDivF, kDivS, kDivU)) \
  X(kMaximum, "maximum", NoAttrs, 2, 1, 0, "", \
    Any, None, kCheap | kReducer, (kMaxF, kMaxS, kMaxU, kOr)) \
  X(kMinimum, "minimum", NoAttrs, 2, 1, 0, "", \
    Any, None, kCheap | kReducer, (kMinF, kMinS, kMinU, kAnd)) \
  X(kMultiply, "multiply", NoAttrs, 2, 1, 0, "", \
    Any, Product, kCheap | kWraps | kReducer, (kMulF, kMulI, kMulI, kAnd)) \
  /* multiply_high, internal: high half of ui32 products */ \
  X(kMultiplyHigh, "multiply_high", NoAttrs, 2, 1, 0, "", Integers, None, kNone, (kNo, kNo, kMulhiU)) \
  X(kOr, "or", NoAttrs, 2, 1, 0, "", Bits, None, kCheap | kReducer, (kNo, kOr, kOr, kOr)) \
  X(kPower, "power", NoAttrs, 2, 1, 0, "", Numbers, None, kWraps, (kPowF, kPowS, kPowU)) \
  X(kRemainder, "remainder", NoAttrs, 2, 1, 0, "", Numbers, None, kNone, (kRemF, kRemS, kRemU)) \
  X(kShiftLeft, "shift_left", NoAttrs, 2, 1, 0, "", Integers, None, kWraps, (kNo, kShl, kShl)) \
  X(kShiftRightArith, "shift_right_arithmetic", NoAttrs, 2, 1, 0, "", \
    Integers, None, kWraps, (kNo, kSar, kSar)) \
  X(kShiftRightLogical, "shift_right_logical", NoAttrs, 2, 1, 0, "", \
    Integers, None, kWraps, (kNo, kShr, kShr)) \
  X(kSubtract, "subtract", NoAttrs, 2, 1, 0, "", \
    Numbers, FirstTwo, kCheap | kWraps, (kSubF, kSubI, kSubI)) \
  X(kXor, "xor", NoAttrs, 2, 1, 0, "", Bits, None, kReducer, (kNo, kXor, kXor, kXor))
// elementwise, three operands: clamp(min, x, max), select(pred, on_true, on_false)
#define TPU_TERNARY_KINDS(X) \
  /* multiply_add, internal: x * y + z, rounded once */ \
  X(kMultiplyAdd, "multiply_add", NoAttrs, 3, 1, 0, "stablehlo.add", Own, None, kCheap, ()) \
  X(kClamp, "clamp", NoAttrs, 3, 1, 0, "", Own, None, kCheap, ()) \
  X(kSelect, "select", NoAttrs, 3, 1, 0, "", Own, Choices, kCheap | kByParts, ())
// shape and data movement
#define TPU_SHAPE_KINDS(X) \
  X(kBroadcastInDim, "broadcast_in_dim", DimsAttrs, 1, 1, 0, "", \
    Own, Sometimes, kKeepsFinite | kFolds | kUnrolls | kView | kByParts | kByHalves, ()) \
  X(kConcatenate, "concatenate", DimAttrs, -1, 1, 0, "", \
    Own, All, kFolds | kUnrolls | kByParts | kByHalves, ()) \
  X(kDynamicSlice, "dynamic_slice", DimsAttrs, -1, 1, 0, "", Own, First, kFolds | kByParts, ()) \
  X(kDynamicUpdateSlice, "dynamic_update_slice", NoAttrs, -1, 1, 0, "", \
    Own, FirstTwo, kFolds | kByParts, ()) \
  X(kGather, "gather", GatherAttrs, 2, 1, 0, "", Own, First, kFolds | kByParts, ()) \
  X(kPad, "pad", PadAttrs, 2, 1, 0, "", Own, Sometimes, kFolds | kByParts | kByHalves, ()) \
  X(kReshape, "reshape", NoAttrs, 1, 1, 0, "", \
    Own, First, kKeepsFinite | kFolds | kUnrolls | kView | kByParts | kByHalves, ()) \
  X(kReverse, "reverse", DimsAttrs, 1, 1, 0, "", \
    Own, First, kKeepsFinite | kFolds | kUnrolls | kView | kByParts | kByHalves, ()) \
  X(kSlice, "slice", SliceAttrs, 1, 1, 0, "", \
    Own, First, kFolds | kUnrolls | kView | kByParts | kByHalves, ()) \
  X(kTranspose, "transpose", DimsAttrs, 1, 1, 0, "", \
    Own, First, kKeepsFinite | kFolds | kUnrolls | kView | kByParts | kByHalves, ()) \
  /* view of every window: made by the pass `legalize`, never imported */ \
  X(kWindow, "window", WindowViewAttrs, 1, 1, 0, "", Own, None, kFolds | kView | kByHalves, ()) \
  X(kOptimizationBarrier, "optimization_barrier", NoAttrs, -1, -1, 0, "", \
    Own, None, kUnrolls | kView, ())
// contractions
#define TPU_CONTRACTION_KINDS(X) \
  X(kDotGeneral, "dot_general", DotAttrs, 2, 1, 0, "", Own, Product, kFolds, ()) \
  X(kConvolution, "convolution", ConvAttrs, 2, 1, 0, "", Own, Product, kNone, ()) \
  X(kFft, "fft", FftAttrs, 1, 1, 0, "", /* gone after the pass `split_complex` */ \
    Own, None, kNone, ())
// with regions that are computed for many elements
#define TPU_BODY_KINDS(X) \
  X(kReduce, "reduce", DimsAttrs, -1, -1, 1, "", Own, Sometimes, kCaptures, ()) \
  X(kReduceWindow, "reduce_window", WindowAttrs, -1, -1, 1, "", \
    Own, None, kCaptures | kWholeArray, ()) \
  X(kSelectAndScatter, "select_and_scatter", WindowAttrs, 3, 1, 2, "", \
    Own, None, kCaptures | kWholeArray, ()) \
  X(kScatter, "scatter", ScatterAttrs, -1, -1, 1, "", Own, Sometimes, kCaptures, ()) \
  /* moves and updates of windows by a list of element offsets: made by the pass `legalize` */ \
  X(kIndexedRead, "indexed_read", IndexedAttrs, 2, 1, 0, "stablehlo.gather", \
    Own, None, kFolds, ()) \
  X(kIndexedWrite, "indexed_write", IndexedAttrs, 3, 1, 0, "stablehlo.scatter", \
    Own, None, kFolds, ()) \
  X(kIndexedCombine, "indexed_combine", IndexedAttrs, -1, -1, 1, "stablehlo.scatter", \
    Own, None, kCaptures, ()) \
  X(kSort, "sort", SortAttrs, -1, -1, 1, "", Own, None, kCaptures | kWholeArray, ()) \
  X(kMap, "map", DimsAttrs, -1, 1, 1, "", Own, None, kCaptures | kWholeArray, ())
// control flow
#define TPU_CONTROL_KINDS(X) \
  X(kWhile, "while", NoAttrs, -1, -1, 2, "", Own, None, kCaptures, ()) \
  X(kIf, "if", NoAttrs, 1, -1, 2, "", Own, None, kCaptures, ()) \
  X(kCase, "case", NoAttrs, 1, -1, -1, "", Own, None, kCaptures, ())
// collectives
#define TPU_COLLECTIVE_KINDS(X) \
  X(kAllReduce, "all_reduce", CollectiveAttrs, -1, -1, 1, "", Own, None, kNone, ()) \
  X(kReduceScatter, "reduce_scatter", CollectiveAttrs, 1, 1, 1, "", Own, None, kNone, ()) \
  X(kAllGather, "all_gather", CollectiveAttrs, -1, -1, 0, "", Own, None, kByHalves, ()) \
  X(kAllToAll, "all_to_all", CollectiveAttrs, -1, -1, 0, "", Own, None, kByHalves, ()) \
  X(kCollectiveBroadcast, "collective_broadcast", CollectiveAttrs, 1, 1, 0, "", \
    Own, None, kByParts | kByHalves, ()) \
  X(kCollectivePermute, "collective_permute", PermuteAttrs, 1, 1, 0, "", \
    Own, None, kByParts | kByHalves, ())
// with the host, while the program runs: the core waits until the host has answered
#define TPU_HOST_KINDS(X) \
  X(kSend, "send", HostAttrs, 1, 0, 0, "", Own, None, kNone, ()) \
  X(kRecv, "recv", HostAttrs, 0, 1, 0, "", Own, None, kNone, ())
// whole-tensor helpers
#define TPU_WHOLE_KINDS(X) \
  X(kBatchNormTraining, "batch_norm_training", BatchNormAttrs, 3, 3, 0, "", \
    Own, None, kWholeArray, ()) \
  X(kBatchNormInference, "batch_norm_inference", BatchNormAttrs, 5, 1, 0, "", \
    Own, None, kWholeArray, ()) \
  X(kBatchNormGrad, "batch_norm_grad", BatchNormAttrs, 5, 3, 0, "", Own, None, kWholeArray, ()) \
  X(kRngBitGenerator, "rng_bit_generator", RngAttrs, 1, 2, 0, "", Own, None, kNone, ()) \
  X(kRng, "rng", RngAttrs, 3, 1, 0, "", Own, None, kNone, ()) /* gone after the pass `rng` */
// of matrices, the last two dimensions: gone after the pass `linalg`
#define TPU_MATRIX_KINDS(X) \
  X(kCholesky, "cholesky", CholeskyAttrs, 1, 1, 0, "", Own, None, kNone, ()) \
  X(kTriangularSolve, "triangular_solve", TriangularSolveAttrs, 2, 1, 0, "", Own, None, kNone, ()) \
  /* qr, internal: R and reflectors in one matrix, and their factors */ \
  X(kQr, "qr", NoAttrs, 1, 2, 0, "stablehlo.custom_call", Own, None, kNone, ()) \
  /* householder_product, internal */ \
  X(kHouseholderProduct, "householder_product", NoAttrs, 2, 1, 0, "stablehlo.custom_call", \
    Own, None, kNone, ()) \
  /* lu, internal: L and U in one matrix, row swaps, permutation */ \
  X(kLu, "lu", NoAttrs, 1, 3, 0, "stablehlo.custom_call", Own, None, kNone, ()) \
  /* eigh, internal: eigenvectors, eigenvalues */ \
  X(kEigh, "eigh", EighAttrs, 1, 2, 0, "stablehlo.custom_call", Own, None, kNone, ())
// calls: gone after the pass `inline`, custom_call excepted
#define TPU_CALL_KINDS(X) \
  X(kCall, "call", CallAttrs, -1, -1, 0, "", Own, None, kNone, ()) \
  X(kComposite, "composite", CallAttrs, -1, -1, 0, "", Own, None, kNone, ()) \
  X(kCustomCall, "custom_call", CustomCallAttrs, -1, -1, 0, "", Own, None, kNone, ())
// sizes as operands, results of static shape: gone after the pass `static_sizes`
#define TPU_SIZED_KINDS(X) \
  X(kDynamicPad, "dynamic_pad", NoAttrs, 5, 1, 0, "", Own, None, kNone, ()) \
  X(kRealDynamicSlice, "real_dynamic_slice", NoAttrs, 4, 1, 0, "", Own, None, kNone, ()) \
  X(kDynamicConv, "dynamic_conv", ConvAttrs, 3, 1, 0, "", Own, None, kNone, ()) \
  X(kSetDimensionSize, "set_dimension_size", DimAttrs, 2, 1, 0, "", Own, None, kNone, ())
// of the global graph: gone after the pass `partition`
#define TPU_GLOBAL_KINDS(X) \
  X(kShardingConstraint, "sharding_constraint", ShardingAttrs, 1, 1, 0, "sdy.sharding_constraint", \
    Own, None, kByParts, ()) \
  X(kReshard, "reshard", ShardingAttrs, 1, 1, 0, "sdy.reshard", Own, None, kByParts, ()) \
  X(kManualComputation, "manual_computation", ManualAttrs, -1, -1, 1, "sdy.manual_computation", \
    Own, None, kNone, ())
// ends every region
#define TPU_END_KINDS(X) \
  X(kReturn, "return", NoAttrs, -1, 0, 0, "", Own, None, kUnrolls, ())
#define TPU_OP_KINDS(X) \
  TPU_SOURCE_KINDS(X) TPU_UNARY_KINDS(X) TPU_BINARY_KINDS(X) TPU_TERNARY_KINDS(X) \
  TPU_SHAPE_KINDS(X) TPU_CONTRACTION_KINDS(X) TPU_BODY_KINDS(X) TPU_CONTROL_KINDS(X) \
  TPU_COLLECTIVE_KINDS(X) TPU_HOST_KINDS(X) TPU_WHOLE_KINDS(X) TPU_MATRIX_KINDS(X) \
  TPU_CALL_KINDS(X) TPU_SIZED_KINDS(X) TPU_GLOBAL_KINDS(X) TPU_END_KINDS(X)
// clang-format on

// clang-format off
#define TPU_ELEMENTWISE_KINDS(X) TPU_UNARY_KINDS(X) TPU_BINARY_KINDS(X) TPU_TERNARY_KINDS(X)

// Labels of a switch for all kinds of some groups: TPU_CASES(SOURCE, ELEMENTWISE, MATRIX).
#define TPU_CASES(...) TPU_EXPAND(TPU_CASES_FIRST(__VA_ARGS__))
#define TPU_CASES_FIRST(group, ...) \
  TPU_##group##_KINDS(TPU_CASE) __VA_OPT__(TPU_CASES_AGAIN TPU_PARENTHESES (__VA_ARGS__))
#define TPU_CASES_AGAIN() TPU_CASES_FIRST
#define TPU_PARENTHESES ()
#define TPU_CASE(id, ...) case Kind::id:
#define TPU_EXPAND(...) TPU_EXPAND2(TPU_EXPAND2(TPU_EXPAND2(TPU_EXPAND2(__VA_ARGS__))))
#define TPU_EXPAND2(...) TPU_EXPAND3(TPU_EXPAND3(TPU_EXPAND3(TPU_EXPAND3(__VA_ARGS__))))
#define TPU_EXPAND3(...) __VA_ARGS__
// clang-format on

enum class Kind : uint8_t {
#define X(id, ...) id,
  TPU_OP_KINDS(X)
#undef X
};

std::string_view kind_name(Kind kind);
std::string source_name(Kind kind);  // for messages: the StableHLO op that a kind comes from
std::optional<Kind> kind_from_name(std::string_view name);
bool is_elementwise(Kind kind);  // result element i depends on element i of the operands alone
bool is_collective(Kind kind);
bool is_matrix_op(Kind kind);    // factorisations and solvers of matrices
bool is_global_only(Kind kind);  // shardings and shard_map: not in the graph of one core

}  // namespace tpu::compiler
