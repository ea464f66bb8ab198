// Runs of elements: a quick look first, then one by one where there is something.
#include "core/engines/non_finite.hpp"

#include <cstring>

namespace tpu::model {
namespace {

constexpr uint32_t kExponent = 0x7F80'0000;
constexpr uint32_t kMantissa = 0x007F'FFFF;

template <class Element>
uint32_t element_at(const uint8_t* at) {
  Element value;
  std::memcpy(&value, at, sizeof value);
  return uint32_t{value} << (32 - 8 * sizeof value);  // bf16 is the upper half of an f32
}

}  // namespace

template <class Element>
void NonFiniteScan::add_run(const uint8_t* vmem, uint64_t at, uint64_t bytes) {
  const uint64_t end = at + bytes / sizeof(Element) * sizeof(Element);
  bool any = false;
  for (uint64_t i = at; i < end; i += sizeof(Element)) {
    any |= (element_at<Element>(vmem + i) & kExponent) == kExponent;
  }
  for (uint64_t i = at; any && i < end; i += sizeof(Element)) {
    const uint32_t bits = element_at<Element>(vmem + i);
    if ((bits & kExponent) != kExponent) {
      continue;
    }
    std::optional<Found>& first = (bits & kMantissa) != 0 ? nan_ : infinity_;
    if (!first) {
      first = {i, bits};
    }
  }
}

void NonFiniteScan::add(const uint8_t* vmem, const spec::StridePattern& pattern, spec::Elem type) {
  if (type != spec::Elem::kF32 && type != spec::Elem::kBf16) {
    return;
  }
  spec::visit_runs(pattern, [&](int64_t address, int64_t bytes) {
    const auto at = static_cast<uint64_t>(address);
    const auto size = static_cast<uint64_t>(bytes);
    type == spec::Elem::kF32 ? add_run<uint32_t>(vmem, at, size)
                             : add_run<uint16_t>(vmem, at, size);
  });
}

}  // namespace tpu::model
