// PerReplica: what each core of a program has of a value, and reductions of it on the host. A
// program returns a replicated result once for all cores; one that differs by core (a loss or a
// count that no collective has summed) is looked at or put together here.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tpu/buffer.hpp"

namespace tpu::driver {

/// One value a core, in the order of the program's devices.
template <typename Value>
class PerReplica {
 public:
  PerReplica() = default;
  /// `values`: one a core.
  explicit PerReplica(std::vector<Value> values) : values_(std::move(values)) {}

  size_t size() const { return values_.size(); }                              ///< number of cores
  const Value& operator[](size_t replica) const { return values_[replica]; }  ///< of one core
  auto begin() const { return values_.begin(); }                              ///< of all
  auto end() const { return values_.end(); }                                  ///< after the last

 private:
  std::vector<Value> values_;
};

/// How reduce() puts the values of the cores together, element by element.
enum class Reduction : uint8_t { kSum, kMean, kMin, kMax };

/// What each core has of `array`: its part of one that is cut, its copy of one that is replicated.
/// Waits, and throws as Buffer::to_host().
PerReplica<HostArray> per_replica(const Array& array);

/// In the order of the cores, so that the bits are the same in every run: ((c0 + c1) + c2) + ... A
/// mean is the sum divided by the number of cores; of i32 it is rounded to zero, and sums wrap.
/// Throws InvalidArgument when there are no values, when their types or shapes differ, and for
/// other elements than f32 and i32.
HostArray reduce(Reduction reduction, const PerReplica<HostArray>& values);

}  // namespace tpu::driver
