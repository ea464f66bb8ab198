// Performance counters of a core behind registers: SNAPSHOT copies all at one cycle.
#pragma once

#include <cstdint>
#include <functional>
#include <systemc>

#include "kernel/register_socket.hpp"
#include "probe/perf_counters.hpp"
#include "tpu/spec/perf_regs.hpp"
#include "tpu/spec/perf_table.hpp"

namespace tpu::model {

class PerfUnit : public sc_core::sc_module, public RegisterBlock {
 public:
  RegisterSocket csr_tsock{"csr_tsock", *this};

  using Values = PerfCounters::Values;

  // `now` gives all counters at the present cycle.
  PerfUnit(sc_core::sc_module_name name, std::function<Values()> now)
      : sc_module(name), RegisterBlock(registers()), now_(std::move(now)) {}

  void visit_state(spec::Archive& archive) { archive(copy_); }

 private:
  static RegisterMap registers() {
    static constexpr auto kMap =
        make_register_map(spec::perf::kTable, {on_write<&PerfUnit::snapshot>(spec::perf::kSnapshot),
                                               on_value<&PerfUnit::word>(spec::perf::kCounter)});
    return kMap.view();
  }
  void snapshot() { copy_ = now_(); }
  uint32_t word(uint32_t index) const {
    return index / 2 < copy_.size() ? static_cast<uint32_t>(copy_[index / 2] >> (index % 2 * 32))
                                    : 0;
  }

  const std::function<Values()> now_;
  Values copy_{};
};

}  // namespace tpu::model
