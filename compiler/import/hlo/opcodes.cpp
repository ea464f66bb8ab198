// See opcodes.hpp. The list is that of XLA of November 2025 (xla/hlo/ir/hlo_opcode.h), with those
// of earlier versions.
#include "import/hlo/opcodes.hpp"

#include <algorithm>
#include <array>

namespace tpu::compiler::hlo {
namespace {

constexpr int kAny = -1;

constexpr std::array kOpcodes = std::to_array<Opcode>({
    {"abs", 1, "abs_v1", math::plain},
    {"acos", 1, "acos", math::chlo},
    {"acosh", 1, "acosh", math::chlo},
    {"add", 2, "add_v1", math::plain},
    {"add-dependency", 2, "", shapes::same},
    {"after-all", kAny, "after_all_v1", math::plain},
    {"all-gather", kAny, "all_gather_v2", cores::all_gather},
    {"all-gather-done", 1, "", bodies::done},
    {"all-gather-start", kAny, "all_gather_v2", cores::all_gather},
    {"all-reduce", kAny, "all_reduce_v2", cores::all_reduce},
    {"all-reduce-done", 1, "", bodies::done},
    {"all-reduce-start", kAny, "all_reduce_v2", cores::all_reduce},
    {"all-to-all", kAny, "all_to_all_v2", cores::all_to_all},
    {"and", 2, "and_v1", math::plain},
    {"asin", 1, "asin", math::chlo},
    {"asinh", 1, "asinh", math::chlo},
    {"async-done", 1, "", bodies::done},
    {"async-start", kAny, "", bodies::async_start},
    {"async-update", 1, "", bodies::async_update},
    {"atan", 1, "atan", math::chlo},
    {"atan2", 2, "atan2_v1", math::plain},
    {"atanh", 1, "atanh", math::chlo},
    {"batch-norm-grad", 5, "batch_norm_grad_v1", math::batch_norm},
    {"batch-norm-inference", 5, "batch_norm_inference_v1", math::batch_norm},
    {"batch-norm-training", 3, "batch_norm_training_v1", math::batch_norm},
    {"bitcast", 1, "", shapes::bitcast},
    {"bitcast-convert", 1, "bitcast_convert_v1", math::plain},
    {"broadcast", 1, "broadcast_in_dim_v1", shapes::broadcast},
    {"call", kAny, "call_v1", bodies::call},
    {"cbrt", 1, "cbrt_v1", math::plain},
    {"ceil", 1, "ceil_v1", math::plain},
    {"cholesky", 1, "cholesky_v1", math::cholesky},
    {"clamp", 3, "clamp_v1", math::plain},
    {"collective-broadcast", kAny, "collective_broadcast_v1", cores::broadcast},
    {"collective-permute", kAny, "collective_permute_v1", cores::permute},
    {"collective-permute-done", 1, "", bodies::done},
    {"collective-permute-start", kAny, "collective_permute_v1", cores::permute},
    {"collective-reduce", kAny, "", nullptr},
    {"compare", 2, "compare_v1", math::compare},
    {"complex", 2, "complex_v1", math::plain},
    {"concatenate", kAny, "concatenate_v1", shapes::dimension},
    {"conditional", kAny, "", bodies::conditional},
    {"constant", 0, "constant_v1", shapes::constant},
    {"convert", 1, "convert_v1", math::plain},
    {"convolution", 2, "convolution_v1", math::convolution},
    {"copy", 1, "", shapes::same},
    {"copy-done", 1, "", bodies::done},
    {"copy-start", 1, "", bodies::copy_start},
    {"cosh", 1, "cosh", math::chlo},
    {"cosine", 1, "cosine_v1", math::plain},
    {"count-leading-zeros", 1, "count_leading_zeros_v1", math::plain},
    {"custom-call", kAny, "custom_call_v1", bodies::custom_call},
    {"divide", 2, "divide_v1", math::plain},
    {"domain", 1, "", shapes::same},
    {"dot", 2, "dot_general_v2", math::dot},
    {"dynamic-reshape", kAny, "", nullptr},
    {"dynamic-slice", kAny, "dynamic_slice_v1", shapes::dynamic_slice},
    {"dynamic-update-slice", kAny, "dynamic_update_slice_v1", shapes::dynamic_update_slice},
    {"erf", 1, "erf", math::chlo},
    {"exponential", 1, "exponential_v1", math::plain},
    {"exponential-minus-one", 1, "exponential_minus_one_v1", math::plain},
    {"fft", 1, "fft_v1", math::fft},
    {"floor", 1, "floor_v1", math::plain},
    {"fusion", kAny, "", bodies::fusion},
    {"gather", 2, "gather_v2", shapes::gather},
    {"get-dimension-size", 1, "get_dimension_size_v1", shapes::dimension},
    {"get-tuple-element", 1, "", shapes::element},
    {"imag", 1, "imag_v1", math::plain},
    {"infeed", 1, "infeed_v1", cores::infeed},
    {"iota", 0, "iota_v1", shapes::iota},
    {"is-finite", 1, "is_finite_v1", math::plain},
    {"log", 1, "log_v1", math::plain},
    {"log-plus-one", 1, "log_plus_one_v1", math::plain},
    {"logistic", 1, "logistic_v1", math::plain},
    {"map", kAny, "map_v1", bodies::map},
    {"maximum", 2, "maximum_v1", math::plain},
    {"minimum", 2, "minimum_v1", math::plain},
    {"mulhi", 2, "", math::multiply_high},
    {"multiply", 2, "multiply_v1", math::plain},
    {"negate", 1, "negate_v1", math::plain},
    {"not", 1, "not_v1", math::plain},
    {"opt-barrier", 1, "optimization_barrier_v1", math::plain},
    {"or", 2, "or_v1", math::plain},
    {"outfeed", 2, "outfeed_v1", cores::infeed},
    {"pad", 2, "pad_v1", shapes::pad},
    {"parameter", 0, "", shapes::parameter},
    {"partition-id", 0, "partition_id_v1", math::plain},
    {"popcnt", 1, "popcnt_v1", math::plain},
    {"power", 2, "power_v1", math::plain},
    {"ragged-all-to-all", 6, "", nullptr},
    {"ragged-dot", 3, "", nullptr},
    {"real", 1, "real_v1", math::plain},
    {"recv", 1, "recv_v1", cores::recv},
    {"recv-done", 1, "", cores::recv_done},
    {"reduce", kAny, "reduce_v1", bodies::reduce},
    {"reduce-precision", 1, "reduce_precision_v1", math::reduce_precision},
    {"reduce-scatter", kAny, "reduce_scatter_v1", cores::reduce_scatter},
    {"reduce-window", kAny, "reduce_window_v1", bodies::reduce_window},
    {"remainder", 2, "remainder_v1", math::plain},
    {"replica-id", 0, "replica_id_v1", math::plain},
    {"reshape", 1, "reshape_v1", math::plain},
    {"reverse", 1, "reverse_v1", shapes::dimensions},
    {"rng", kAny, "rng_v1", math::rng},
    {"rng-bit-generator", 1, "rng_bit_generator_v1", math::rng_bit_generator},
    {"rng-get-and-update-state", 0, "", nullptr},
    {"round-nearest-afz", 1, "round_nearest_afz_v1", math::plain},
    {"round-nearest-even", 1, "round_nearest_even_v1", math::plain},
    {"rsqrt", 1, "rsqrt_v1", math::plain},
    {"scaled-dot", 4, "", nullptr},
    {"scan", kAny, "", nullptr},
    {"scatter", kAny, "scatter_v2", bodies::scatter},
    {"select", 3, "select_v1", math::plain},
    {"select-and-scatter", 3, "select_and_scatter_v1", bodies::select_and_scatter},
    {"send", 2, "send_v1", cores::send},
    {"send-done", 1, "", cores::send_done},
    {"set-dimension-size", 2, "set_dimension_size_v1", sizes::set_dimension_size},
    {"shift-left", 2, "shift_left_v1", math::plain},
    {"shift-right-arithmetic", 2, "shift_right_arithmetic_v1", math::plain},
    {"shift-right-logical", 2, "shift_right_logical_v1", math::plain},
    {"shuffle", 1, "", nullptr},
    {"sign", 1, "sign_v1", math::plain},
    {"sine", 1, "sine_v1", math::plain},
    {"sinh", 1, "sinh", math::chlo},
    {"slice", 1, "slice_v1", shapes::slice},
    {"sort", kAny, "sort_v1", bodies::sort},
    {"sqrt", 1, "sqrt_v1", math::plain},
    {"stochastic-convert", 2, "", nullptr},
    {"subtract", 2, "subtract_v1", math::plain},
    {"tan", 1, "tan_v1", math::plain},
    {"tanh", 1, "tanh_v1", math::plain},
    {"topk", 1, "custom_call_v1", bodies::top_k},
    {"transpose", 1, "transpose_v1", shapes::transpose},
    {"triangular-solve", 2, "triangular_solve_v1", math::triangular_solve},
    {"tuple", kAny, "", shapes::tuple},
    {"while", 1, "while_v1", bodies::loop},
    {"xor", 2, "xor_v1", math::plain},
});
static_assert(std::is_sorted(kOpcodes.begin(), kOpcodes.end(),
                             [](const Opcode& a, const Opcode& b) { return a.name < b.name; }));

}  // namespace

std::span<const Opcode> opcodes() { return kOpcodes; }

WindowLists::WindowLists(const Instruction& at) {
  for (const WindowDimension& w : at.window) {
    size.push_back(w.size);
    stride.push_back(w.stride);
    padding.push_back(w.low);
    padding.push_back(w.high);
    base_dilation.push_back(w.base_dilation);
    window_dilation.push_back(w.window_dilation);
    reversal.push_back(w.reversed ? 1 : 0);
  }
}

const Opcode* find_opcode(std::string_view name) {
  const auto at = std::lower_bound(kOpcodes.begin(), kOpcodes.end(), name,
                                   [](const Opcode& o, std::string_view n) { return o.name < n; });
  return at == kOpcodes.end() || at->name != name ? nullptr : &*at;
}

}  // namespace tpu::compiler::hlo
