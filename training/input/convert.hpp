// One stored value to its place in a batch: cut out and mirrored, checked, converted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "input/feature.hpp"
#include "input/source.hpp"

namespace tpu::input {

/// What the random numbers of an augmentation are keyed by.
struct AugmentKey {
  uint64_t seed = 0;
  uint32_t epoch = 0;
  uint64_t example = 0;
};

/// For one thread.
class Converter {
 public:
  /// Throws driver::Error InvalidArgument for a feature that makes no sense; `number` tells the
  /// random numbers of several features apart.
  Converter(Feature feature, uint64_t number);

  const Feature& feature() const { return feature_; }
  /// Of one example in the batch.
  uint64_t bytes() const { return bytes_; }
  /// Throws BadExample that names the feature.
  void convert(const Value& value, const AugmentKey& key, std::span<std::byte> to);

 private:
  void check_feature() const;
  std::span<const std::byte> cut(const Value& value, const AugmentKey& key);
  template <typename From>
  void convert_from(std::span<const std::byte> from, std::byte* to) const;
  template <typename From>
  void to_floats(std::span<const std::byte> from, std::byte* to) const;
  template <typename From, typename To>
  void to_integers(std::span<const std::byte> from, std::byte* to) const;

  Feature feature_;
  uint64_t number_;
  uint64_t elements_;
  uint64_t stored_elements_;
  uint64_t bytes_;
  std::vector<std::byte> cut_;
};

}  // namespace tpu::input
