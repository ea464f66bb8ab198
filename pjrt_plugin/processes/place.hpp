// Which of the processes that share a board this one is, and where they meet. Each has as many
// devices, in order: of eight and four processes, process 1 has TPU:2 and TPU:3.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "client_options.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::pjrt {

struct ProcessPlace {
  int process = 0;
  int processes = 1;
  std::string folder;  ///< where they meet; empty for one process

  bool is_shared() const { return processes > 1; }
  /// Of a board with so many devices.
  int process_of(int device, int devices) const { return device / (devices / processes); }
};

/// What jax.distributed.initialize() was told.
struct JaxProcess {
  int process = 0;
  int processes = 1;
  std::string coordinator;
};

using Variable = std::function<std::optional<std::string>(const char* name)>;

/// From TPUBOARD_PROCESS_*, else from the variables of the real machine (TPU_PROCESS_BOUNDS and
/// those that go with it), else from JAX. Throws driver::Error (InvalidArgument) for values that
/// contradict each other or the board, with both of them.
ProcessPlace read_place(const client::ClientOptions& options, const spec::BoardParams& board,
                        const Variable& variable, const std::optional<JaxProcess>& jax);

/// Of this process; read at the first call.
const ProcessPlace& process_place();

}  // namespace tpu::pjrt
