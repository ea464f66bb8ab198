// Infeed counters: registers.
#include "mgmt/infeed.hpp"

#include "tpu/spec/infeed_regs.hpp"
#include "tpu/spec/infeed_table.hpp"
#include "tpu/spec/irq_regs.hpp"

namespace tpu::model {

RegisterMap Infeed::registers() {
  static constexpr auto kMap = make_register_map(
      spec::infeed::kTable,
      {on_write<&Infeed::check>(spec::infeed::kFull), on_write<&Infeed::push>(spec::infeed::kPush),
       on_write<&Infeed::pop>(spec::infeed::kPop), on_write<&Infeed::check>(spec::infeed::kWant)});
  return kMap.view();
}

void Infeed::check() {
  if (reg(spec::infeed::kWant) != 0 && reg(spec::infeed::kFull) >= reg(spec::infeed::kWant)) {
    irq_.raise(spec::irq::kInfeed);
  }
}

void Infeed::push(uint32_t batches) {
  cell(spec::infeed::kFull) += batches;
  check();
}

void Infeed::pop(uint32_t batches) { cell(spec::infeed::kFree) += batches; }

}  // namespace tpu::model
