// Replicas on several cores: how arguments and results are sharded. The board has one program for
// all cores. Where TensorFlow would make one for each, an array on one core is an argument with an
// entry for each core, and the program reads that of the right one.
#pragma once

#include <vector>

#include "lowering/lowered.hpp"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"
#include "tensorflow/core/tpu/kernels/tpu_executable_info.pb.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_sharding.h"
#include "xla/service/hlo.pb.h"

namespace tpu::tensorflow {

/// Where an argument or a result is.
struct Place {
  xla::HloSharding sharding = xla::HloSharding::Replicate();
  int core = -1;  ///< the only one that has it; -1: all have it, or a part of it
};

struct Shardings {
  int cores = 1;                 ///< of a replica
  std::vector<Place> arguments;  ///< of the program, without constants
  std::vector<Place> results;    ///< without constants; new values of variables behind the others

  bool cores_differ() const;
};

/// Those of the request. Unimplemented for what the board does not place on several cores.
absl::StatusOr<Shardings> shardings_of(const ::tensorflow::tpu::TPUCompileMetadataProto& metadata,
                                       const ::tensorflow::XlaCompiler::CompilationResult& result);

/// Says them in the module, whose arguments and results are tuples.
void set_shardings(const Shardings& shardings, xla::HloModuleProto& module);
/// Arguments on one core get an entry for each core.
absl::Status spread_arguments(const Shardings& shardings, xla::HloModule& module);

/// What TensorFlow is told of the program on this core.
absl::StatusOr<::tensorflow::TPUExecutableInfoProto> info_of(
    const ::tensorflow::XlaCompiler::CompilationResult& result, const Shardings& shardings,
    const std::vector<::tensorflow::XlaCompiler::Argument>& arguments, int core);
/// Of each core of a replica; empty where they do not differ.
absl::StatusOr<std::vector<CoreInterface>> core_interfaces(
    const ::tensorflow::XlaCompiler::CompilationResult& result, const Shardings& shardings,
    const std::vector<::tensorflow::XlaCompiler::Argument>& arguments);

}  // namespace tpu::tensorflow
