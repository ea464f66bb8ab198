// Between the plugin and the library that lowers graphs of TensorFlow to HLO modules: that library
// is built against one version of TensorFlow, and loaded into a process that has it. Both are built
// together, so that the structure is plain C++.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tpu::tensorflow {

struct Lowered {
  std::string hlo;              // HloModuleProto; the arguments are one tuple
  std::string executable_info;  // TPUExecutableInfoProto
  std::string metadata;         // HloProto
  int replicas = 1;
  std::vector<int> devices;  // by replica; empty: not said
  bool modifies_variables = false;

  int error_code = 0;  // of absl::StatusCode; with an error the rest is empty
  std::string error;
};

// `request`: a TpuCompilationRequestProto. Throws nothing.
using LowerFunction = void(const char* request, size_t size, Lowered& lowered);
inline constexpr char kLowerFunction[] = "tpuboard_tf_lower";

// "2.20.0": the version of TensorFlow that the library was built for.
using LowerVersionFunction = const char*();
inline constexpr char kLowerVersionFunction[] = "tpuboard_tf_version";

}  // namespace tpu::tensorflow
