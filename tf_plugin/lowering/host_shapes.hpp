// The shapes of what a host computation gives, from those of what it is given.
#pragma once

#include <string>
#include <vector>

#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace tpu::tensorflow {

/// `graph` is the part of the host, which this changes; the compiler knows what is sent to it.
/// `name`: of the computation, for errors.
absl::StatusOr<std::vector<::tensorflow::TensorShape>> shapes_of_results(
    ::tensorflow::Graph& graph, const ::tensorflow::FunctionLibraryDefinition& library,
    ::tensorflow::XlaCompiler& compiler, const std::string& name);

}  // namespace tpu::tensorflow
