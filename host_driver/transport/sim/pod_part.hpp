// The simulated boards of one of several processes that share a pod.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "socket/pipe.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {

/// Which boards a process has, some in a row, and how it reaches the others.
struct PodPart {
  uint32_t rank = 0;            ///< of this process
  uint32_t ranks = 1;           ///< processes; 1: all boards are in this one
  std::span<std::byte> memory;  ///< that all map, zeros at first; it outlives the board
  /// In place of memory: to each process, by rank, null at the own one.
  std::vector<std::shared_ptr<base::Pipe>> pipes;
};

/// As make_sim_transport(), with a part of the boards. Throws Error.
std::unique_ptr<Transport> make_sim_transport(const TransportRequest& request, HostMemory& memory,
                                              const PodPart& part);

}  // namespace tpu::driver
