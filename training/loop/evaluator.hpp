// Runs an eval program over the held-out examples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "loop/dataset.hpp"
#include "loop/signature.hpp"
#include "tpu/executable.hpp"

namespace tpu::training {

class Evaluator {
 public:
  /// `signature` is that of `program` (eval_signature). Throws InvalidArgument when the data do not
  /// fit the program.
  Evaluator(const Dataset& data, driver::Executable program, Signature signature);

  /// Names of what it finds.
  std::vector<std::string> metrics() const;
  /// With the state leaves `state`, which stay as they are.
  EvalResult evaluate(const std::vector<driver::Array>& state) const;

 private:
  driver::RunResult launch(const std::vector<driver::Array>& state,
                           const input::Batch& batch) const;

  const Dataset& data_;
  driver::Executable program_;
  Signature signature_;
  std::vector<driver::ParameterInfo> infos_;  // by input
  int64_t batch_;
};

}  // namespace tpu::training
