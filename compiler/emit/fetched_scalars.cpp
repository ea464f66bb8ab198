#include "emit/fetched_scalars.hpp"

#include <algorithm>

namespace tpu::compiler {

namespace {

constexpr int64_t kFirstScalar = 16,
                  kScalarBytes = 8;  // SMEM of scalars; counters of loops lie behind
constexpr size_t kMostScalars = 62;

}  // namespace

std::optional<int64_t> FetchedScalars::find(const ScalarPlace& scalar) {
  const auto held = std::ranges::find_if(
      held_, [&](const Held& h) { return h.value == scalar.value && h.offset == scalar.offset; });
  if (held == held_.end()) {
    return std::nullopt;
  }
  held_.splice(held_.end(), held_, held);
  return held->address;
}

int64_t FetchedScalars::add(const ScalarPlace& scalar) {
  int64_t address = kFirstScalar + kScalarBytes * static_cast<int64_t>(held_.size());
  if (held_.size() == kMostScalars) {
    address = held_.front().address;
    held_.pop_front();
  }
  held_.push_back({scalar.value, scalar.offset, address});
  return address;
}

}  // namespace tpu::compiler
