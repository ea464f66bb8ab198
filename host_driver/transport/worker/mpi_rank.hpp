// Ranks of one `mpirun` that share the boards of a pod: rank 0 has the program and the first part
// of the boards, the others are workers.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "socket/pipe.hpp"
#include "tpu/board.hpp"

namespace tpu::driver::worker {

/// What OpenOptions::connect is then. Addresses of single ranks have the number behind it; they are
/// used within the program alone.
inline constexpr const char* kMpiAddress = "mpi:";

/// Of the end of MPI: for ranks that have not read everything yet. Those that have died are not
/// waited for.
inline constexpr std::chrono::milliseconds kMpiPatience{60'000};

/// Of such an address; nothing for others.
std::optional<int> rank_of_address(const std::string& address);
std::string address_of_rank(int rank);

/// Throws Error (InvalidArgument) for options that name another kind of worker too, and for
/// addresses that only begin like this one.
void check_mpi(const OpenOptions& options);

/// What a rank other than 0 does where rank 0 opens its board: it has boards for that one until it
/// closes them, and this process ends then. `options` are those of its own call.
[[noreturn]] void serve_rank(const OpenOptions& options);
/// Wires to all other ranks; null at the own one.
std::vector<std::shared_ptr<base::Pipe>> mpi_wires();

}  // namespace tpu::driver::worker
