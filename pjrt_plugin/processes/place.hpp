// Which of the processes that share a board this one is, what each of them has, and where they
// meet.
#pragma once

#include <optional>
#include <string>

#include "client_options.hpp"
#include "processes/owners.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::pjrt {

struct ProcessPlace {
  int process = 0;
  int processes = 1;
  std::string folder = {};     ///< where they meet; empty for one process
  bool is_own_folder = false;  ///< TPUBOARD_PROCESS_DIR names it
  bool has_store = false;      ///< ToldProcess::passes_store
  DeviceOwners owners = {};

  bool is_shared() const { return processes > 1; }
};

/// What a framework says of its processes: jax.distributed.initialize() was told it, or it is an
/// option of the client (`node_id`, `num_nodes`).
struct ToldProcess {
  int process = 0;
  int processes = 1;
  std::string coordinator = {};
  /// The framework passes its key-value store. Without one, it may leave the callbacks of the
  /// client unset: these are of no use to tell.
  bool passes_store = false;
};

/// What frameworks say, by who does.
struct ToldProcesses {
  std::optional<ToldProcess> options;
  std::optional<ToldProcess> jax;
};

/// From TPUBOARD_PROCESS_*, else from the options of the client, else from the variables of the
/// real machine (TPU_PROCESS_BOUNDS and those that go with it), else from JAX. Throws driver::Error
/// (InvalidArgument) for values that contradict each other or the board, with both of them.
ProcessPlace read_place(const client::ClientOptions& options, const spec::BoardParams& board,
                        const Variable& variable, const ToldProcesses& told);

/// Of this process; read at the first call, which has the options of its client.
const ProcessPlace& process_place(const std::optional<ToldProcess>& options = {});

}  // namespace tpu::pjrt
