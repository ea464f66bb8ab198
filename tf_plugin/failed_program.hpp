// What TensorFlow is told of a program that could not be compiled. TensorFlow 2.20 ends the process
// when a compilation fails (tpu_compilation_cache_external.cc takes the programs of a group that
// has none). So a compilation never fails: its launches do, with its error.
#pragma once

#include <string>
#include <string_view>

namespace tpu::tensorflow {

/// TPUExecutableInfoProto of a program with the arguments of the request and without results, which
/// TensorFlow checks before a launch. Throws driver::Error for a damaged request.
std::string info_of_request(std::string_view request);

}  // namespace tpu::tensorflow
