// See op_class.hpp.
#include "analysis/op_class.hpp"

#include <algorithm>

namespace tpu::driver {
namespace {

constexpr std::array<std::string_view, 6> kCollectives = {"all_reduce",     "all_gather",
                                                          "all_to_all",     "collective_permute",
                                                          "reduce_scatter", "collective_broadcast"};
constexpr std::array<std::string_view, 14> kMoves = {
    "broadcast_in_dim", "concatenate",   "copy",      "dynamic_slice", "dynamic_update_slice",
    "indexed_read",     "indexed_write", "iota",      "pad",           "reshape",
    "reverse",          "slice",         "transpose", "window"};

template <typename Names>
bool holds(const Names& names, std::string_view kind) {
  return std::ranges::find(names, kind) != names.end();
}

OpClass class_of_kind(std::string_view kind) {
  if (kind == "dot_general" || kind == "convolution") {
    return OpClass::kMatmul;
  }
  if (holds(kCollectives, kind)) {
    return OpClass::kCollective;
  }
  if (kind == "send" || kind == "recv") {
    return OpClass::kHost;
  }
  if (kind.empty() || kind == "while" || kind == "if" || kind == "case") {
    return OpClass::kOther;
  }
  const bool moves = holds(kMoves, kind) || kind.starts_with("result ");
  return moves ? OpClass::kDataFormatting : OpClass::kElementwise;
}

}  // namespace

// A contraction or an exchange gives its name to what is fused with it; arithmetic to moves.
OpClass class_of_op(std::string_view name) {
  OpClass found = class_of_kind(name.substr(0, name.find('+')));
  while (found == OpClass::kDataFormatting && name.find('+') != std::string_view::npos) {
    name.remove_prefix(name.find('+') + 1);
    found = class_of_kind(name.substr(0, name.find('+')));
  }
  return found;
}

}  // namespace tpu::driver
