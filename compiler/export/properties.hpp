// Attributes of ops in the text of StableHLO.
#pragma once

#include <string>

#include "ir/graph.hpp"

namespace tpu::compiler::stablehlo {

// "tensor<2x3xf32>"
std::string type_text(const Type& type);

// In quotes, with what MLIR wants escaped.
std::string quoted(const std::string& text);

// "stablehlo.add"; "stablehlo.custom_call" for kinds of our own.
std::string op_name(Kind kind);

// "<{dimension = 0 : i64}>", or empty. Collectives take `channel` as their handle.
std::string properties_text(const Op& op, int64_t channel);

}  // namespace tpu::compiler::stablehlo
