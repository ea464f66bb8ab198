// Performance counters of a core behind registers: SNAPSHOT copies all at one cycle.
#pragma once

#include <cstdint>
#include <functional>
#include <systemc>

#include "kernel/register_block.hpp"
#include "probe/perf_counters.hpp"
#include "tpu/spec/perf_regs.hpp"

namespace tpu::model {

class PerfUnit : public RegisterBlock {
 public:
  using Values = PerfCounters::Values;

  // `now` gives all counters at the present cycle.
  PerfUnit(sc_core::sc_module_name name, std::function<Values()> now)
      : RegisterBlock(name), now_(std::move(now)) {}

  void visit_state(spec::Archive& archive) { archive(copy_); }

 protected:
  uint32_t read_register(uint32_t offset) const override {
    if (offset < spec::perf::kCounter ||
        offset >= spec::perf::kCounter + spec::perf::kCounterCount * spec::perf::kCounterStride) {
      return kUndefined;
    }
    const uint32_t word = (offset - spec::perf::kCounter) / spec::perf::kCounterStride;
    return word / 2 < copy_.size() ? static_cast<uint32_t>(copy_[word / 2] >> (word % 2 * 32)) : 0;
  }
  void write_register(uint32_t offset, uint32_t /*value*/) override {
    if (offset == spec::perf::kSnapshot) {
      copy_ = now_();
    }
  }

 private:
  const std::function<Values()> now_;
  Values copy_{};
};

}  // namespace tpu::model
