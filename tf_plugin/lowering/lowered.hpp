// Between the plugin and the library that lowers graphs of TensorFlow to HLO modules: that library
// is built against one version of TensorFlow, and loaded into a process that has it. Both are built
// together, so that the structure is plain C++.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tpu::tensorflow {

/// A result whose sizes are known at run time only: an array of the bounds, and behind all results
/// that TensorFlow knows of, the size of each of its dimensions as an s32.
struct DynamicResult {
  size_t result = 0, first_size = 0;
};

struct Lowered {
  std::string hlo;  // HloModuleProto; the arguments are one tuple, and the seed if it is seeded
  std::string executable_info;  // TPUExecutableInfoProto
  std::string metadata;         // HloProto
  int replicas = 1;
  std::vector<int> devices;  // by replica; empty: not said
  bool modifies_variables = false;
  std::vector<DynamicResult> dynamic_results;
  bool seeded = false;  // the last argument is the seed of the launch, a u32

  int error_code = 0;  // of absl::StatusCode; with an error the rest is empty
  std::string error;
};

// `request`: a TpuCompilationRequestProto. Throws nothing.
using LowerFunction = void(const char* request, size_t size, Lowered& lowered);
inline constexpr char kLowerFunction[] = "tpuboard_tf_lower";

// Makes the random numbers of an HLO module (HloModuleProto) functions of a seed: Lowered::hlo and
// seeded. Throws nothing.
using SeedFunction = void(const char* module, size_t size, Lowered& lowered);
inline constexpr char kSeedFunction[] = "tpuboard_tf_seed";

// "2.20.0": the version of TensorFlow that the library was built for.
using LowerVersionFunction = const char*();
inline constexpr char kLowerVersionFunction[] = "tpuboard_tf_version";

}  // namespace tpu::tensorflow
