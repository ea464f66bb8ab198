// A pod whose boards several workers share, as one transport: every call goes to the worker that
// has the chip, and those in which simulated time passes to all of them at the same time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/memory/shared_range.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {

/// Addresses in OpenOptions::connect, which commas separate.
std::vector<std::string> addresses_of(const std::string& connect);

/// As make_worker_transport(), with the workers at all addresses of OpenOptions::connect, or with
/// OpenOptions::board_processes workers that end with the transport. Throws Error.
std::unique_ptr<Transport> make_pod_transport(const OpenOptions& options,
                                              const TransportRequest& request, HostMemory& memory,
                                              std::span<const SharedRange> shared,
                                              uint32_t firmware);

}  // namespace tpu::driver
