// Where the workers of a pod that have no memory in common find each other: what the program that
// uses them tells each of them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "transport/worker/worker_transport.hpp"

namespace tpu::driver::worker {

class PodMeeting {
 public:
  /// `ca`: file of the certificates by which the program knows the workers at these addresses;
  /// empty: they have no TLS. Nothing else of the file is sent. Throws Error (InvalidArgument).
  PodMeeting(const std::string& ca, std::vector<std::string> workers);

  /// A worker has said where it listens for the others.
  void add(size_t rank, const std::string& listens, bool is_loopback);
  /// Of all, which have come. The addresses are those at which they listen: the name by which the
  /// program knows a host can lead elsewhere on another one, and is that in its certificate alone.
  /// Throws Error (FailedPrecondition) for workers of which only some are on loopback addresses.
  WorkerPart::Addresses all() const;

 private:
  const std::vector<std::string> workers_;
  WorkerPart::Addresses all_;
  std::vector<bool> is_loopback_;
};

}  // namespace tpu::driver::worker
