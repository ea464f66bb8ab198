// Connections between workers that share a pod and have no memory in common: each listens at a
// loopback address, and connects to those of a lower rank. A secret of the driver keeps others out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "socket/descriptor.hpp"

namespace tpu::driver::worker {

class PodSockets {
 public:
  /// Listens. Throws Error (Unavailable).
  PodSockets();
  const std::string& address() const { return address_; }

  /// By rank, none at the own one; `addresses` are those of all. Throws Error (Unavailable): one
  /// does not answer, or does not come in time.
  std::vector<base::Descriptor> connect(uint32_t rank, std::span<const std::string> addresses,
                                        std::span<const std::byte> secret);

 private:
  std::string address_;
  base::Descriptor listener_;
};

}  // namespace tpu::driver::worker
