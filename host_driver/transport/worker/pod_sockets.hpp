// Connections between workers that share a pod and have no memory in common: each listens at the
// address at which the program has reached it, and connects to those of a lower rank. A secret of
// the program keeps others out. Between hosts there is TLS, with certificates at both ends.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "socket/descriptor.hpp"
#include "socket/pipe.hpp"
#include "transport/worker/address.hpp"
#include "transport/worker/peer_tls.hpp"

namespace tpu::driver::worker {

/// The workers of a pod, by rank.
struct PodPeers {
  std::vector<std::string> addresses;  ///< at which they listen
  std::vector<std::string> names;      ///< hosts that their certificates name; empty: no TLS
  std::vector<std::byte> secret;       ///< of this run
};

class PodSockets {
 public:
  /// Listens at the address to which `connection` leads, a TCP connection of a program; on loopback
  /// for every other one. `far`: other hosts may connect. Throws Error.
  PodSockets(int connection, bool far);
  const std::string& address() const { return address_.text; }
  bool is_loopback() const;

  /// By rank, null at the own one. Without `tls` nothing is encrypted. `program`: its connection,
  /// or -1; there is little time left when it has ended. Throws Error: FailedPrecondition for a
  /// certificate or a secret that is rejected, Unavailable: one does not answer, or does not come
  /// in time.
  std::vector<std::shared_ptr<base::Pipe>> connect(uint32_t rank, const PodPeers& peers,
                                                   const std::optional<PeerTls>& tls, int program);

 private:
  Address address_;
  base::Descriptor listener_;
};

}  // namespace tpu::driver::worker
