// Which boards of a pod a process has when several share them: some in a row for each process.
#pragma once

#include <cstdint>
#include <string>

namespace tpu::spec {

/// The process that has a board, of `ranks` processes; there are not more of them than boards.
inline uint32_t rank_of_board(uint32_t board, uint32_t boards, uint32_t ranks) {
  return static_cast<uint32_t>(uint64_t{board} * ranks / boards);
}

/// Memory that the processes share for what they send to each other: for each ordered pair a ring,
/// and a bell for each process. All zeros at first.
inline constexpr uint64_t kPodRingBytes = uint64_t{256} << 10;
inline constexpr uint64_t kPodRingHeadBytes = 128;
inline constexpr uint64_t kPodBellBytes = 64;
inline uint64_t pod_memory_bytes(uint32_t ranks) {
  return ranks * kPodBellBytes + uint64_t{ranks} * ranks * (kPodRingHeadBytes + kPodRingBytes);
}

/// The fault log of a process of a pod, by the first chip that it has.
inline std::string fault_log_part(const std::string& path, int64_t first_chip) {
  return path + ".chip" + std::to_string(first_chip);
}

}  // namespace tpu::spec
