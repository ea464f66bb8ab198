// The board of a worker as a transport: what the driver asks of a board goes over a connection to
// the process that has it. Posted calls wait here until one is answered, since no simulated time
// passes in between.
#pragma once

#include <memory>
#include <span>

#include "src/memory/shared_range.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {

/// `shared`: what the worker can map of the memory, where it is on this host. `firmware`: checksum
/// of the image that will run. Throws Error: Unavailable, and what the worker refuses with.
std::unique_ptr<Transport> make_worker_transport(const OpenOptions& options,
                                                 const TransportRequest& request,
                                                 HostMemory& memory,
                                                 std::span<const SharedRange> shared,
                                                 uint32_t firmware);

}  // namespace tpu::driver
