// Executable: a core program that is loaded on a group of devices. Loading checks it against the
// board; running it binds arrays and launches all its cores as one gang.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tpu/buffer.hpp"

namespace tpu::driver {

struct ExecutableState;

/// One argument or result of a program.
struct ParameterInfo {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;  ///< global
  Layout layout;
  int donated_to = -1;  ///< arguments: the result that takes over the buffer; -1: none
};

struct RunOptions {
  uint32_t steps =
      1;  ///< steps of one launch; more than one needs a program whose state is donated
  /// Arguments that keep their buffer although the program would take it over: they are copied
  /// first.
  std::vector<size_t> keep;
};

struct RunResult {
  std::vector<Array> outputs;
  Event done;  ///< all cores have finished the launch
};

class Executable {
 public:
  Executable() = default;
  explicit Executable(std::shared_ptr<ExecutableState> state) : state_(std::move(state)) {}

  bool valid() const { return state_ != nullptr; }
  const std::string& name() const;
  const std::vector<ParameterInfo>& arguments() const;
  const std::vector<ParameterInfo>& results() const;
  uint32_t partitions() const;
  /// Logical 2*M*K*N of one core and step, without padding.
  uint64_t matmul_flops() const;

  /// Uploads a global array as argument `index` wants it. Checks type and shape.
  Array put(size_t index, const HostView& global) const;

  /// Launches. Does not wait, except when the rings are full. Donated arguments are deleted at once
  /// (given back when the launch is refused). Throws InvalidArgument before anything is sent.
  RunResult run(const std::vector<Array>& arguments, const RunOptions& options = {}) const;

  const std::shared_ptr<ExecutableState>& state() const { return state_; }

 private:
  std::shared_ptr<ExecutableState> state_;
};

}  // namespace tpu::driver
