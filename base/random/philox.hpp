// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): random
// numbers by counter, so that any of them can be made on its own, in any order, by any thread.
#pragma once

#include <array>
#include <cstdint>

namespace tpu::base {

/// One block.
inline std::array<uint32_t, 4> philox(const std::array<uint32_t, 4>& counter,
                                      const std::array<uint32_t, 2>& key) {
  constexpr uint64_t kM0 = 0xD2511F53;
  constexpr uint64_t kM1 = 0xCD9E8D57;
  constexpr uint32_t kW0 = 0x9E3779B9;
  constexpr uint32_t kW1 = 0xBB67AE85;
  constexpr int kRounds = 10;
  std::array<uint32_t, 4> c = counter;
  std::array<uint32_t, 2> k = key;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = kM0 * c[0];
    const uint64_t p1 = kM1 * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += kW0;
    k[1] += kW1;
  }
  return c;
}

}  // namespace tpu::base
