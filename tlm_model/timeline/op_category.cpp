// Kinds of ops in classes.
#include "timeline/op_category.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace tpu::model {
namespace {

using Kinds = std::vector<std::string_view>;

constexpr std::array<std::string_view, 6> kCollectives = {"all_reduce",     "all_gather",
                                                          "all_to_all",     "collective_permute",
                                                          "reduce_scatter", "collective_broadcast"};
constexpr std::array<std::string_view, 13> kMoves = {"broadcast_in_dim",
                                                     "concatenate",
                                                     "copy",
                                                     "dynamic_slice",
                                                     "dynamic_update_slice",
                                                     "iota",
                                                     "pad",
                                                     "reshape",
                                                     "reverse",
                                                     "slice",
                                                     "transpose",
                                                     "window",
                                                     "constant"};
// Alone they keep their name; every other kind that is not above is elementwise.
constexpr std::array<std::string_view, 31> kWhole = {"batch_norm_grad",
                                                     "batch_norm_inference",
                                                     "batch_norm_training",
                                                     "call",
                                                     "cholesky",
                                                     "composite",
                                                     "custom_call",
                                                     "dynamic_conv",
                                                     "dynamic_pad",
                                                     "eigh",
                                                     "fft",
                                                     "householder_product",
                                                     "lu",
                                                     "manual_computation",
                                                     "map",
                                                     "optimization_barrier",
                                                     "partition_id",
                                                     "qr",
                                                     "real_dynamic_slice",
                                                     "reduce",
                                                     "reduce_window",
                                                     "replica_id",
                                                     "reshard",
                                                     "return",
                                                     "rng",
                                                     "rng_bit_generator",
                                                     "set_dimension_size",
                                                     "sharding_constraint",
                                                     "sort",
                                                     "triangular_solve",
                                                     "while"};

template <typename Names>
bool holds(const Names& names, std::string_view kind) {
  return std::ranges::find(names, kind) != names.end();
}

bool contracts(std::string_view kind) { return kind == "dot_general" || kind == "convolution"; }
bool exchanges(std::string_view kind) { return holds(kCollectives, kind); }
bool moves(std::string_view kind) { return holds(kMoves, kind); }
bool gathers(std::string_view kind) { return kind == "indexed_read" || kind == "gather"; }
bool scatters(std::string_view kind) {
  return kind == "indexed_write" || kind == "indexed_combine" || kind == "scatter" ||
         kind == "select_and_scatter";
}

// Without "7 more" at the end.
Kinds kinds_of(std::string_view name) {
  Kinds kinds;
  for (;;) {
    const size_t plus = name.find('+');
    const std::string_view kind = name.substr(0, plus);
    if (!kind.ends_with(" more")) {
      kinds.push_back(kind);
    }
    if (plus == std::string_view::npos) {
      return kinds;
    }
    name.remove_prefix(plus + 1);
  }
}

std::string opcode(std::string_view kind) {
  std::string text(kind == "broadcast_in_dim" ? "broadcast" : kind);
  std::ranges::replace(text, '_', '-');
  return text;
}

std::string category_of_one(std::string_view kind) {
  if (kind.starts_with("result ")) {
    return "copy";
  }
  if (kind == "reshape" || kind == "transpose" || kind == "window") {
    return "data formatting";
  }
  if (kind == "send" || kind == "recv") {
    return "host " + std::string(kind);
  }
  if (kind == "if" || kind == "case") {
    return "conditional";
  }
  if (kind == "select_and_scatter") {
    return opcode(kind);
  }
  if (gathers(kind) || scatters(kind)) {
    return gathers(kind) ? "gather" : "scatter";
  }
  const bool whole = moves(kind) || holds(kWhole, kind) || kind.find(' ') != std::string_view::npos;
  return whole ? opcode(kind) : "non-fusion elementwise";
}

std::string category_of_exchange(const Kinds& kinds, std::string_view exchange) {
  if (!std::ranges::all_of(kinds, exchanges)) {
    if (exchange == "all_reduce" || exchange == "all_gather") {
      return opcode(exchange) + " fusion";
    }
    if (exchange == "reduce_scatter") {
      return "all-reduce-scatter fusion";
    }
  }
  return opcode(exchange);
}

}  // namespace

std::string hlo_category(std::string_view name) {
  const Kinds kinds = kinds_of(name);
  const bool fused = name.find('+') != std::string_view::npos;
  if (std::ranges::any_of(kinds, contracts)) {
    return fused ? "convolution fusion" : "convolution";
  }
  if (const auto found = std::ranges::find_if(kinds, exchanges); found != kinds.end()) {
    return category_of_exchange(kinds, *found);
  }
  if (!fused) {
    return category_of_one(name);
  }
  if (std::ranges::all_of(kinds, moves)) {
    return "data formatting";
  }
  if (std::ranges::any_of(kinds, scatters)) {
    return "scatter fusion";
  }
  return std::ranges::any_of(kinds, gathers) ? "gather fusion" : "loop fusion";
}

std::string op_type(std::string_view name) {
  if (name.starts_with("result ")) {
    return "copy";
  }
  const Kinds kinds = kinds_of(name);
  for (const auto& first : {contracts, exchanges}) {
    if (const auto found = std::ranges::find_if(kinds, first); found != kinds.end()) {
      return std::string(*found);
    }
  }
  return std::string(kinds.empty() ? name : kinds.back());
}

}  // namespace tpu::model
