// What TensorFlow is told of a program that could not be compiled. TensorFlow 2.20 ends the process
// when a compilation fails and gives no program (tpu_compilation_cache_external.cc takes the
// programs of a group that has none). So a compilation that fails gives a program. TensorFlow takes
// it, frees the array that it came in, and looks at the status of the compilation once more: there
// it finds the error, before an argument of the function has been given away. With a version that
// does not look again the launches of the program fail.
#pragma once

#include <string>
#include <string_view>

#include "abi/ops.h"

namespace tpu::tensorflow {

/// TPUExecutableInfoProto of a program with the arguments of the request and without results, which
/// TensorFlow checks before a launch. Throws driver::Error for a damaged request.
std::string info_of_request(std::string_view request);

/// The status gets the error when this thread frees the array, unless it is freed before.
void fail_when_freed(XLA_TpuProgram* const* programs, TF_Status* status, const TF_Status& error);
void array_is_freed(XLA_TpuProgram* const* programs);
void status_is_freed(const TF_Status* status);

}  // namespace tpu::tensorflow
