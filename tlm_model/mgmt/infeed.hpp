// Counters of filled and free infeed slots. Specification: spec/regs/infeed.toml.
#pragma once

#include <cstdint>

#include "kernel/register_block.hpp"
#include "mgmt/irq.hpp"

namespace tpu::model {

class Infeed : public RegisterBlock {
 public:
  explicit Infeed(Irq& irq) : RegisterBlock(registers()), irq_(irq) {}

  void reset() { reset_registers(); }
  void visit_state(spec::Archive& archive) { visit_registers(archive); }

 private:
  static RegisterMap registers();
  void check();
  void push(uint32_t batches);
  void pop(uint32_t batches);

  Irq& irq_;
};

}  // namespace tpu::model
