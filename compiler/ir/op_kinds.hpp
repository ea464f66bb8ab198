// The op kinds of the graph: StableHLO names without version. One line per kind:
// X(enumerator, name, attribute struct, operands or -1 for any, results or -1, regions or -1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tpu::compiler {

// clang-format off
#define TPU_OP_KINDS(X)                                         \
  X(kConstant, "constant", ConstantAttrs, 0, 1, 0)              \
  X(kIota, "iota", DimAttrs, 0, 1, 0)                           \
  X(kPartitionId, "partition_id", NoAttrs, 0, 1, 0)             \
  X(kReplicaId, "replica_id", NoAttrs, 0, 1, 0) /* import makes it partition_id */ \
  /* elementwise, one operand */                                \
  X(kAbs, "abs", NoAttrs, 1, 1, 0)                              \
  X(kCbrt, "cbrt", NoAttrs, 1, 1, 0)                            \
  X(kCeil, "ceil", NoAttrs, 1, 1, 0)                            \
  X(kConvert, "convert", NoAttrs, 1, 1, 0)                      \
  X(kCosine, "cosine", NoAttrs, 1, 1, 0)                        \
  X(kErf, "erf", NoAttrs, 1, 1, 0) /* internal: the composite chlo.erf */ \
  X(kClz, "count_leading_zeros", NoAttrs, 1, 1, 0)              \
  X(kExp, "exponential", NoAttrs, 1, 1, 0)                      \
  X(kExpm1, "exponential_minus_one", NoAttrs, 1, 1, 0)          \
  X(kFloor, "floor", NoAttrs, 1, 1, 0)                          \
  X(kImag, "imag", NoAttrs, 1, 1, 0) /* gone after the pass `split_complex` */ \
  X(kIsFinite, "is_finite", NoAttrs, 1, 1, 0)                   \
  X(kLog, "log", NoAttrs, 1, 1, 0)                              \
  X(kLog1p, "log_plus_one", NoAttrs, 1, 1, 0)                   \
  X(kLogistic, "logistic", NoAttrs, 1, 1, 0)                    \
  X(kNegate, "negate", NoAttrs, 1, 1, 0)                        \
  X(kNot, "not", NoAttrs, 1, 1, 0)                              \
  X(kPopcnt, "popcnt", NoAttrs, 1, 1, 0)                        \
  X(kReal, "real", NoAttrs, 1, 1, 0) /* gone after the pass `split_complex` */ \
  X(kRoundAfz, "round_nearest_afz", NoAttrs, 1, 1, 0)           \
  X(kRoundEven, "round_nearest_even", NoAttrs, 1, 1, 0)         \
  X(kRsqrt, "rsqrt", NoAttrs, 1, 1, 0)                          \
  X(kSign, "sign", NoAttrs, 1, 1, 0)                            \
  X(kSine, "sine", NoAttrs, 1, 1, 0)                            \
  X(kSqrt, "sqrt", NoAttrs, 1, 1, 0)                            \
  X(kTan, "tan", NoAttrs, 1, 1, 0)                              \
  X(kTanh, "tanh", NoAttrs, 1, 1, 0)                            \
  X(kReducePrecision, "reduce_precision", ReducePrecisionAttrs, 1, 1, 0) \
  X(kBitcastConvert, "bitcast_convert", NoAttrs, 1, 1, 0)       \
  /* elementwise, two operands */                               \
  X(kAdd, "add", NoAttrs, 2, 1, 0)                              \
  X(kAnd, "and", NoAttrs, 2, 1, 0)                              \
  X(kAtan2, "atan2", NoAttrs, 2, 1, 0)                          \
  X(kCompare, "compare", CompareAttrs, 2, 1, 0)                 \
  X(kComplex, "complex", NoAttrs, 2, 1, 0) /* gone after the pass `split_complex` */ \
  X(kDivide, "divide", NoAttrs, 2, 1, 0)                        \
  X(kMaximum, "maximum", NoAttrs, 2, 1, 0)                      \
  X(kMinimum, "minimum", NoAttrs, 2, 1, 0)                      \
  X(kMultiply, "multiply", NoAttrs, 2, 1, 0)                    \
  X(kMultiplyHigh, "multiply_high", NoAttrs, 2, 1, 0) /* internal: high half of ui32 products */ \
  X(kOr, "or", NoAttrs, 2, 1, 0)                                \
  X(kPower, "power", NoAttrs, 2, 1, 0)                          \
  X(kRemainder, "remainder", NoAttrs, 2, 1, 0)                  \
  X(kShiftLeft, "shift_left", NoAttrs, 2, 1, 0)                 \
  X(kShiftRightArith, "shift_right_arithmetic", NoAttrs, 2, 1, 0) \
  X(kShiftRightLogical, "shift_right_logical", NoAttrs, 2, 1, 0) \
  X(kSubtract, "subtract", NoAttrs, 2, 1, 0)                    \
  X(kXor, "xor", NoAttrs, 2, 1, 0)                              \
  /* elementwise, three operands: clamp(min, x, max), select(pred, on_true, on_false) */ \
  X(kMultiplyAdd, "multiply_add", NoAttrs, 3, 1, 0) /* internal: x * y + z, rounded once */ \
  X(kClamp, "clamp", NoAttrs, 3, 1, 0)                          \
  X(kSelect, "select", NoAttrs, 3, 1, 0)                        \
  /* shape and data movement */                                 \
  X(kBroadcastInDim, "broadcast_in_dim", DimsAttrs, 1, 1, 0)    \
  X(kConcatenate, "concatenate", DimAttrs, -1, 1, 0)            \
  X(kDynamicSlice, "dynamic_slice", DimsAttrs, -1, 1, 0)        \
  X(kDynamicUpdateSlice, "dynamic_update_slice", NoAttrs, -1, 1, 0) \
  X(kGather, "gather", GatherAttrs, 2, 1, 0)                    \
  X(kPad, "pad", PadAttrs, 2, 1, 0)                             \
  X(kReshape, "reshape", NoAttrs, 1, 1, 0)                      \
  X(kReverse, "reverse", DimsAttrs, 1, 1, 0)                    \
  X(kSlice, "slice", SliceAttrs, 1, 1, 0)                       \
  X(kTranspose, "transpose", DimsAttrs, 1, 1, 0)                \
  /* view of every window: made by the pass `legalize`, never imported */ \
  X(kWindow, "window", WindowViewAttrs, 1, 1, 0)                \
  X(kOptimizationBarrier, "optimization_barrier", NoAttrs, -1, -1, 0) \
  /* contraction */                                             \
  X(kDotGeneral, "dot_general", DotAttrs, 2, 1, 0)              \
  X(kConvolution, "convolution", ConvAttrs, 2, 1, 0)            \
  X(kFft, "fft", FftAttrs, 1, 1, 0) /* gone after the pass `split_complex` */ \
  /* with regions */                                            \
  X(kReduce, "reduce", DimsAttrs, -1, -1, 1)                    \
  X(kReduceWindow, "reduce_window", WindowAttrs, -1, -1, 1)     \
  X(kSelectAndScatter, "select_and_scatter", WindowAttrs, 3, 1, 2) \
  X(kScatter, "scatter", ScatterAttrs, -1, -1, 1)               \
  /* moves and updates of windows by a list of element offsets: made by the pass `legalize` */ \
  X(kIndexedRead, "indexed_read", IndexedAttrs, 2, 1, 0)        \
  X(kIndexedWrite, "indexed_write", IndexedAttrs, 3, 1, 0)      \
  X(kIndexedCombine, "indexed_combine", IndexedAttrs, -1, -1, 1) \
  X(kSort, "sort", SortAttrs, -1, -1, 1)                        \
  X(kMap, "map", DimsAttrs, -1, 1, 1)                           \
  X(kWhile, "while", NoAttrs, -1, -1, 2)                        \
  X(kIf, "if", NoAttrs, 1, -1, 2)                               \
  X(kCase, "case", NoAttrs, 1, -1, -1)                          \
  /* collectives */                                             \
  X(kAllReduce, "all_reduce", CollectiveAttrs, -1, -1, 1)       \
  X(kReduceScatter, "reduce_scatter", CollectiveAttrs, 1, 1, 1) \
  X(kAllGather, "all_gather", CollectiveAttrs, -1, -1, 0)       \
  X(kAllToAll, "all_to_all", CollectiveAttrs, -1, -1, 0)        \
  X(kCollectiveBroadcast, "collective_broadcast", CollectiveAttrs, 1, 1, 0) \
  X(kCollectivePermute, "collective_permute", PermuteAttrs, 1, 1, 0) \
  /* with the host, while the program runs: the core waits until the host has answered */ \
  X(kSend, "send", HostAttrs, 1, 0, 0)                          \
  X(kRecv, "recv", HostAttrs, 0, 1, 0)                          \
  /* whole-tensor helpers */                                    \
  X(kBatchNormTraining, "batch_norm_training", BatchNormAttrs, 3, 3, 0) \
  X(kBatchNormInference, "batch_norm_inference", BatchNormAttrs, 5, 1, 0) \
  X(kBatchNormGrad, "batch_norm_grad", BatchNormAttrs, 5, 3, 0) \
  X(kRngBitGenerator, "rng_bit_generator", RngAttrs, 1, 2, 0)   \
  X(kRng, "rng", RngAttrs, 3, 1, 0) /* gone after the pass `rng` */ \
  /* of matrices, the last two dimensions: gone after the pass `linalg` */ \
  X(kCholesky, "cholesky", CholeskyAttrs, 1, 1, 0)              \
  X(kTriangularSolve, "triangular_solve", TriangularSolveAttrs, 2, 1, 0) \
  X(kQr, "qr", NoAttrs, 1, 2, 0) /* internal: R and reflectors in one matrix, and their factors */ \
  X(kHouseholderProduct, "householder_product", NoAttrs, 2, 1, 0) /* internal */ \
  X(kLu, "lu", NoAttrs, 1, 3, 0) /* internal: L and U in one matrix, row swaps, permutation */ \
  X(kEigh, "eigh", EighAttrs, 1, 2, 0) /* internal: eigenvectors, eigenvalues */ \
  /* calls: gone after the pass `inline`, custom_call excepted */ \
  X(kCall, "call", CallAttrs, -1, -1, 0)                        \
  X(kComposite, "composite", CallAttrs, -1, -1, 0)              \
  X(kCustomCall, "custom_call", CustomCallAttrs, -1, -1, 0)     \
  /* sizes as operands, results of static shape: gone after the pass `static_sizes` */ \
  X(kDynamicPad, "dynamic_pad", NoAttrs, 5, 1, 0)               \
  X(kRealDynamicSlice, "real_dynamic_slice", NoAttrs, 4, 1, 0)  \
  X(kDynamicConv, "dynamic_conv", ConvAttrs, 3, 1, 0)           \
  X(kSetDimensionSize, "set_dimension_size", DimAttrs, 2, 1, 0) \
  /* of the global graph: gone after the pass `partition` */     \
  X(kShardingConstraint, "sharding_constraint", ShardingAttrs, 1, 1, 0) \
  X(kReshard, "reshard", ShardingAttrs, 1, 1, 0)                \
  X(kManualComputation, "manual_computation", ManualAttrs, -1, -1, 1) \
  /* ends every region */                                       \
  X(kReturn, "return", NoAttrs, -1, 0, 0)
// clang-format on

enum class Kind : uint8_t {
#define X(id, name, attrs, in, out, regions) id,
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
