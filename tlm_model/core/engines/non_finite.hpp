// Looks through the results of a command for the first NaN and the first infinity, for probes.
#pragma once

#include <cstdint>
#include <optional>

#include "command/stride_pattern.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::model {

class NonFiniteScan {
 public:
  struct Found {
    uint64_t address = 0;
    uint32_t bits = 0;  // as f32
  };

  // `pattern`: addresses in VMEM, of whole elements. Types that are no floating point hold none.
  void add(const uint8_t* vmem, const spec::StridePattern& pattern, spec::Elem type);

  const std::optional<Found>& nan() const { return nan_; }
  const std::optional<Found>& infinity() const { return infinity_; }

 private:
  template <class Element>
  void add_run(const uint8_t* vmem, uint64_t at, uint64_t bytes);

  std::optional<Found> nan_;
  std::optional<Found> infinity_;
};

}  // namespace tpu::model
