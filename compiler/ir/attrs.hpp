// Typed attributes of graph ops: one struct per family of kinds, held in the variant `Attrs`.
// Which kind carries which struct stands beside each kind in op_kinds.hpp; the verifier checks it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/sharding.hpp"
#include "ir/type.hpp"

namespace tpu::compiler {

enum class CompareDirection : uint8_t { kEq, kNe, kGe, kGt, kLe, kLt };
enum class CompareType : uint8_t { kNone, kFloat, kTotalOrder, kSigned, kUnsigned };
enum class Precision : uint8_t { kDefault, kHigh, kHighest };

struct NoAttrs {
  bool operator==(const NoAttrs&) const = default;
};
struct ConstantAttrs {
  Dense value;
};
struct DimAttrs {  // iota, concatenate: the dimension
  int64_t dim = 0;
  bool operator==(const DimAttrs&) const = default;
};
struct DimsAttrs {  // broadcast_in_dim: result dim of each operand dim; transpose: permutation;
  Dims dims;        // reduce, reverse, map: dimensions; dynamic_slice: slice sizes
  // reduce: loops over the reduced dims stay apart, so that operands whose dims do not merge
  // (slices of one array) can be read in them; its sums have another order than merged ones.
  bool apart = false;
  bool operator==(const DimsAttrs&) const = default;
};
struct CompareAttrs {
  CompareDirection direction = CompareDirection::kEq;
  CompareType type = CompareType::kNone;
  bool operator==(const CompareAttrs&) const = default;
};
struct DotAttrs {
  Dims lhs_batch, rhs_batch, lhs_contract, rhs_contract;
  Precision lhs_precision = Precision::kDefault, rhs_precision = Precision::kDefault;
  bool operator==(const DotAttrs&) const = default;
};
struct SliceAttrs {
  Dims start, limit, stride;
  bool operator==(const SliceAttrs&) const = default;
};
struct PadAttrs {  // low and high may be negative (crop)
  Dims low, high, interior;
  bool operator==(const PadAttrs&) const = default;
};
struct WindowAttrs {  // reduce_window, select_and_scatter (dilations all 1 there)
  Dims size, stride, base_dilation, window_dilation, pad_low, pad_high;
  bool operator==(const WindowAttrs&) const = default;
};
// window: result rank 2r; y[o_0..o_{r-1}, k_0..k_{r-1}] = x[o_d * stride_d + k_d * dilation_d]. The
// operand is padded already, so every position is inside it.
struct WindowViewAttrs {
  Dims size, stride, dilation;
  bool operator==(const WindowViewAttrs&) const = default;
};
struct ConvAttrs {
  Dims window_stride, pad_low, pad_high, lhs_dilation, rhs_dilation;
  std::vector<bool> window_reversal;
  int64_t input_batch = 0, input_feature = 0;
  Dims input_spatial;
  int64_t kernel_input_feature = 0, kernel_output_feature = 0;
  Dims kernel_spatial;
  int64_t output_batch = 0, output_feature = 0;
  Dims output_spatial;
  int64_t feature_groups = 1, batch_groups = 1;
  Precision lhs_precision = Precision::kDefault, rhs_precision = Precision::kDefault;
  bool operator==(const ConvAttrs&) const = default;
};
enum class FftType : uint8_t { kFft, kIfft, kRfft, kIrfft };
struct FftAttrs {  // over the last length.size() dimensions; lengths of the real side
  FftType type = FftType::kFft;
  Dims length;
  bool operator==(const FftAttrs&) const = default;
};
struct GatherAttrs {
  Dims offset_dims, collapsed_slice_dims, operand_batching_dims, start_indices_batching_dims,
      start_index_map, slice_sizes;
  int64_t index_vector_dim = 0;
  bool indices_are_sorted = false;
  bool operator==(const GatherAttrs&) const = default;
};
struct ScatterAttrs {
  Dims update_window_dims, inserted_window_dims, input_batching_dims, scatter_indices_batching_dims,
      scatter_dims_to_operand_dims;
  int64_t index_vector_dim = 0;
  bool indices_are_sorted = false, unique_indices = false;
  bool operator==(const ScatterAttrs&) const = default;
};
// indexed_read(table, list), indexed_write(target, list, updates), indexed_combine(targets.., list,
// updates..): entry i of the i32 list is the element of the table or target where window i begins,
// -1 (not for indexed_read) an update that is left out. Windows have the table's rank; results and
// updates have the shape list.dims + window. Updates are made in the order of the list.
struct IndexedAttrs {
  Dims window;
  bool operator==(const IndexedAttrs&) const = default;
};
struct SortAttrs {
  int64_t dim = 0;
  bool stable = false;
  bool equal_ties = false;  // elements that compare equal have equal bits
  bool operator==(const SortAttrs&) const = default;
};
// Groups hold core numbers (partition ids), explicit and without padding: a member of a group takes
// part with the others of its group, in the given order.
using Groups = std::vector<std::vector<int64_t>>;
struct CollectiveAttrs {  // all_reduce, all_gather (dim), reduce_scatter (dim), all_to_all,
                          // collective_broadcast
  Groups groups;
  int64_t channel = 0;
  int64_t dim = 0;          // all_gather, reduce_scatter; split dimension of all_to_all
  int64_t concat_dim = 0;   // all_to_all
  int64_t split_count = 0;  // all_to_all
  bool operator==(const CollectiveAttrs&) const = default;
};
struct HostAttrs {         // send, recv
  int64_t channel = 0;     // by which the host knows who answers
  int64_t partition = -1;  // that speaks for all cores; -1: each core for itself
  Type array = {};         // what travels; 64-bit elements are two words on the core
  bool memory = false;     // the host keeps it for the program: recv gets what send has sent last
  bool index = false;      // of `memory`, send: which of several arrays of the channel comes next
  bool operator==(const HostAttrs&) const = default;
};
struct PermuteAttrs {  // collective_permute: (source core, target core)
  std::vector<std::array<int64_t, 2>> pairs;
  int64_t channel = 0;
  bool operator==(const PermuteAttrs&) const = default;
};
struct BatchNormAttrs {
  double epsilon = 0;
  int64_t feature_dim = 0;
  bool operator==(const BatchNormAttrs&) const = default;
};
struct ReducePrecisionAttrs {
  int64_t exponent_bits = 8, mantissa_bits = 23;
  bool operator==(const ReducePrecisionAttrs&) const = default;
};
// True if the format holds every value of the type: operands stay as they are, NaNs too.
inline bool is_exact(const ReducePrecisionAttrs& a, Elem elem) {
  return a.exponent_bits >= 8 && a.mantissa_bits >= (elem == Elem::kBf16 ? 7 : 23);
}
struct RngAttrs {  // rng_bit_generator: default, three_fry, philox; rng: uniform, normal
  std::string algorithm;
  bool operator==(const RngAttrs&) const = default;
};
struct CholeskyAttrs {
  bool lower = false;  // of the operand this triangle is read, and the result is that factor
  bool operator==(const CholeskyAttrs&) const = default;
};
struct TriangularSolveAttrs {  // left: a x = b, else x a = b
  bool left = true;
  bool lower = false;
  bool transpose = false;
  bool conjugate = false;  // with `transpose`, of complex numbers
  bool unit_diagonal = false;
  bool operator==(const TriangularSolveAttrs&) const = default;
};
struct EighAttrs {
  bool lower = true;  // the triangle that is read
  bool sort = true;   // ascending
  int64_t max_sweeps = 100;
  double tolerance = 1e-6;  // off the diagonal, against the whole (Frobenius norms)
  bool operator==(const EighAttrs&) const = default;
};
struct CallAttrs {  // call: callee; composite: name and decomposition
  std::string callee;
  std::string composite_name;
  bool operator==(const CallAttrs&) const = default;
};
// Which dimensions of an op's arrays go together, as a framework says it: by dimension the loops
// over it, major first.
enum class LoopKind : uint8_t { kPass, kReduce, kBlocked };  // as of partition/rules/rules.hpp
struct ShardingRule {
  Dims sizes;                                              // by loop
  std::vector<LoopKind> kinds;                             // by loop
  std::vector<std::vector<std::vector<int64_t>>> in, out;  // by array and dimension
  bool operator==(const ShardingRule&) const = default;
};
struct CustomCallAttrs {
  std::string target;
  std::string backend_config;
  bool has_side_effect = false;
  // Arrays of the program: a complex one is two operands (results) behind the pass `split_complex`,
  // the real and next to it the imaginary part.
  std::vector<Type> in = {}, out = {};
  ShardingRule rule = {};  // of these; empty: the program has none
  bool operator==(const CustomCallAttrs&) const = default;
};

// What the program asks for of one array: dimensions that are open may be cut further. Arrays of a
// group (jax.experimental.shard_alike) should lie alike.
struct ShardingAttrs {
  Sharding sharding;
  std::vector<bool> open;  // per dimension
  std::optional<int64_t> group = {};
  bool operator==(const ShardingAttrs&) const = default;
};
// jax.shard_map: the region is what one core computes of its parts of the operands.
struct ManualAttrs {
  std::vector<ShardingAttrs> in, out;  // per operand and result
  std::vector<int> manual_axes;        // of the mesh; along others the region is global
  bool operator==(const ManualAttrs&) const = default;
};
using Attrs = std::variant<NoAttrs, ConstantAttrs, DimAttrs, DimsAttrs, CompareAttrs, DotAttrs,
                           SliceAttrs, PadAttrs, WindowAttrs, WindowViewAttrs, ConvAttrs, FftAttrs,
                           GatherAttrs, ScatterAttrs, IndexedAttrs, SortAttrs, CollectiveAttrs,
                           HostAttrs, PermuteAttrs, BatchNormAttrs, ReducePrecisionAttrs, RngAttrs,
                           CholeskyAttrs, TriangularSolveAttrs, EighAttrs, CallAttrs,
                           CustomCallAttrs, ShardingAttrs, ManualAttrs>;

// Same bits of value and same type; constants compare their contents.
bool attrs_equal(const Attrs& a, const Attrs& b);
std::string to_string(
    const Attrs& attrs);  // "" or " {key=value, ...}"; long constants are shortened

}  // namespace tpu::compiler
