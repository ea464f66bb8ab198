// The board of a worker as a transport: what the driver asks of a board goes over a connection to
// the process that has it. Posted calls wait here until one is answered, since no simulated time
// passes in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/memory/shared_range.hpp"
#include "tpu/transport.hpp"
#include "transport/worker/link_group.hpp"

namespace tpu::driver {

/// Which boards of a pod a worker is to have, and how it reaches the other workers.
struct WorkerPart {
  uint32_t rank = 0;
  uint32_t ranks = 1;
  int file = -1;       ///< of memory that all of them map, so many `bytes`
  uint64_t bytes = 0;  ///< 0: they have connections
  /// Takes the address at which this worker listens, and returns those of all by rank, a secret,
  /// and the certificates that they know each other by (PEM; empty: no TLS): when all have come.
  /// Null: connections of ranks of mpirun are there already.
  struct Addresses {
    std::vector<std::string> all;
    std::vector<std::string> names;  ///< hosts that their certificates name; empty: no TLS
    std::vector<std::byte> secret;
    std::string trusted;
  };
  std::function<Addresses(const std::string& own, bool is_loopback)> exchange{};
  worker::LinkGroup* links = nullptr;  ///< in which the link to this one is
};

/// `shared`: what the worker can map of the memory, where it is on this host. `firmware`: checksum
/// of the image that will run. Throws Error: Unavailable, and what the worker refuses with.
std::unique_ptr<Transport> make_worker_transport(const OpenOptions& options,
                                                 const TransportRequest& request,
                                                 HostMemory& memory,
                                                 std::span<const SharedRange> shared,
                                                 uint32_t firmware, const WorkerPart& part = {});

}  // namespace tpu::driver
