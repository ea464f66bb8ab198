// Operand sources for arithmetic tests: the special values of binary32 and a seeded mix of random
// bit patterns.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace tpu::test {

inline const std::vector<uint32_t>& special_f32() {
  static const std::vector<uint32_t> values = [] {
    std::vector<uint32_t> v;
    for (const uint32_t magnitude :
         {0x00000000u, 0x00000001u, 0x00000002u, 0x003fffffu, 0x00400000u, 0x007ffffeu,
          0x007fffffu, 0x00800000u, 0x00800001u, 0x00ffffffu, 0x01000000u, 0x0b800000u,
          0x1f800000u, 0x20000000u, 0x33800000u, 0x34000000u, 0x3effffffu, 0x3f000000u,
          0x3f7fffffu, 0x3f800000u, 0x3f800001u, 0x3fc00000u, 0x40000000u, 0x4b7fffffu,
          0x4b800000u, 0x5f7fffffu, 0x5f800000u, 0x7e800000u, 0x7f000000u, 0x7f7ffffeu,
          0x7f7fffffu, 0x7f800000u, 0x7f800001u, 0x7fbfffffu, 0x7fc00000u, 0x7fffffffu}) {
      v.push_back(magnitude);
      v.push_back(magnitude | 0x80000000u);
    }
    return v;
  }();
  return values;
}

// Any bits, values near one, values around the underflow and overflow limits, short significands
// (ties), specials.
class OperandSource {
 public:
  explicit OperandSource(uint64_t seed) : rng_(seed) {}

  uint32_t next() {
    const auto r = static_cast<uint32_t>(rng_());
    const auto pick = static_cast<uint32_t>(rng_());
    const uint32_t fraction = (pick & 0x100u) != 0 ? r & 0x807fffffu : r & 0x80700000u;
    const uint32_t jitter = (pick >> 16) % 32;
    switch (pick % 8) {
      case 0:
        return r;
      case 1:
        return special_f32()[r % special_f32().size()];
      case 2:
        return fraction | ((1 + jitter) << 23);
      case 3:
        return fraction | ((223 + jitter) << 23);
      case 4:
        return fraction | ((48 + jitter) << 23);
      default:
        return fraction | ((111 + jitter) << 23);
    }
  }
  uint16_t next_bf16() { return static_cast<uint16_t>(next() >> 16); }

 private:
  std::mt19937_64 rng_;
};

}  // namespace tpu::test
