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
  /// empty: they have no TLS. Throws Error (InvalidArgument).
  PodMeeting(const std::string& ca, std::vector<std::string> workers);

  /// A worker has said where it listens for the others.
  void add(size_t rank, const std::string& listens, bool is_loopback);
  /// Of all, which have come. With TLS the hosts are those by which the program names the workers:
  /// the certificates have these names. Throws Error (FailedPrecondition) for workers of which only
  /// some are on loopback addresses.
  WorkerPart::Addresses all() const;

 private:
  const std::vector<std::string> workers_;
  WorkerPart::Addresses all_;
  std::vector<bool> is_loopback_;
};

}  // namespace tpu::driver::worker
