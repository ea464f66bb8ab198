// Requests whose graph is a module of MLIR: those of a program with the MLIR bridge
// (tf.config.experimental.enable_mlir_bridge()).
#pragma once

#include <string>
#include <vector>

#include "tensorflow/compiler/tf2xla/xla_compiler.h"

namespace tpu::tensorflow {

/// `module`: MLIR in the dialect tf, as text or bytecode.
absl::StatusOr<::tensorflow::XlaCompiler::CompilationResult> mlir_to_hlo(
    const std::string& module, const std::vector<::tensorflow::TensorShape>& shapes,
    const std::string& device_type);

}  // namespace tpu::tensorflow
