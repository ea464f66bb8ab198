// What a program does with an executable that may be damaged: load it, place its arguments, launch
// it twice (results in place of the arguments that they were donated from), read everything back.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exe/executable.hpp"
#include "tpu/tpu.hpp"

namespace tpu::test {

constexpr uint64_t kLargestUsed = uint64_t{1} << 20;  // bytes of all arguments and results

inline uint64_t parameter_bytes(const driver::Executable& program) {
  uint64_t bytes = 0;
  for (const auto* parameters : {&program.arguments(), &program.results()}) {
    for (const driver::ParameterInfo& info : *parameters) {
      const uint64_t count = driver::element_count(info.shape);
      if (count > kLargestUsed) {
        return count;
      }
      bytes += count * driver::dtype_bytes(info.dtype);
    }
  }
  return bytes;
}

inline void launch(const driver::Executable& program) {
  std::vector<driver::Array> arguments;
  for (size_t i = 0; i < program.arguments().size(); ++i) {
    const driver::ParameterInfo& info = program.arguments()[i];
    const driver::HostArray host{info.dtype, info.shape,
                                 std::vector<std::byte>(driver::element_count(info.shape) *
                                                        driver::dtype_bytes(info.dtype))};
    arguments.push_back(program.put(i, host));
  }
  for (int turn = 0; turn < 2; ++turn) {
    const driver::RunResult result = program.run(arguments);
    if (const auto error = result.done.wait_for_error()) {
      throw driver::Error(*error);
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (const int to = program.arguments()[i].donated_to; to >= 0) {
        arguments[i] = result.outputs.at(static_cast<size_t>(to));
      }
    }
    for (size_t r = 0; r < result.outputs.size(); ++r) {
      const driver::HostArray host = result.outputs[r].to_host();
      EXPECT_EQ(host.shape, program.results()[r].shape);
      EXPECT_EQ(host.bytes.size(),
                driver::element_count(host.shape) * driver::dtype_bytes(host.dtype));
    }
  }
}

// "" when all went well, "not launched" for arrays that are too large for a test, else the name of
// the error's code.
inline std::string use_damaged(const driver::Board& board, std::span<const std::byte> file) {
  try {
    const driver::Executable program = board.load(file);
    if (parameter_bytes(program) > kLargestUsed) {
      return "not launched";
    }
    launch(program);
    return "";
  } catch (const driver::Error& error) {
    EXPECT_NE(error.code(), driver::ErrorCode::kInternal) << error.what();
    return driver::error_code_name(error.code());
  }
}

}  // namespace tpu::test
