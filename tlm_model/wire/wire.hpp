// Carrier of bytes between the processes that share the boards of a pod: an ordered stream in each
// direction between two of them. One thread uses it. What the bytes are: pod_stream.hpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace tpu::model {

// Another process, or the way to it, is gone: no board of the pod can go on.
class PodLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A bit for each rank.
using RankSet = uint64_t;
inline constexpr RankSet kAllRanks = ~RankSet{0};
constexpr RankSet rank_bit(uint32_t rank) { return RankSet{1} << rank; }

class Wire {
 public:
  virtual ~Wire() = default;
  virtual uint32_t rank() const = 0;
  virtual uint32_t ranks() const = 0;

  // Bytes of `bytes` that there was room for, from the first on. Throws PodLost.
  virtual size_t send(uint32_t to, std::span<const std::byte> bytes) = 0;
  // Bytes that have come, as many as fit; 0: none. Throws PodLost.
  virtual size_t receive(uint32_t from, std::span<std::byte> bytes) = 0;
  // Until bytes of one of these ranks are there that were not received, or room may have come where
  // send() found none, or the time is over. Who waits for one process is not woken by all. Throws
  // PodLost for a process whose end is noticed.
  virtual void wait(std::chrono::milliseconds limit, RankSet from) = 0;
  // Nothing more is sent: the others find the end behind what has been.
  virtual void end() = 0;
  // The number that a process has on its host, to name it and to notice its end.
  virtual void set_pid(uint32_t rank, int pid) = 0;
};

}  // namespace tpu::model
