// Interrupt sources: registers.
#include "mgmt/irq.hpp"

#include "tpu/spec/irq_table.hpp"

namespace tpu::model {

RegisterMap Irq::registers() {
  static constexpr auto kMap = make_register_map(
      spec::irq::kTable,
      {on_write<&Irq::changed>(spec::irq::kEnable), on_value<&Irq::enabled>(spec::irq::kTake),
       on_read<&Irq::take>(spec::irq::kTake), on_write<&Irq::raise>(spec::irq::kRaise)});
  return kMap.view();
}

}  // namespace tpu::model
