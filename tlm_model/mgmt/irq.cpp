// Interrupt sources: registers.
#include "mgmt/irq.hpp"

#include "tpu/spec/irq_regs.hpp"

namespace tpu::model {

bool Irq::read(uint32_t offset, uint32_t& value) {
  switch (offset) {
    case spec::irq::kPending:
      value = pending_;
      return true;
    case spec::irq::kEnable:
      value = enable_;
      return true;
    case spec::irq::kTake:
      value = pending_ & enable_;
      pending_ &= ~value;
      return true;
    default:
      return false;
  }
}

bool Irq::write(uint32_t offset, uint32_t value) {
  switch (offset) {
    case spec::irq::kPending:
      pending_ &= ~value;
      return true;
    case spec::irq::kEnable:
      enable_ = value;
      changed();
      return true;
    case spec::irq::kRaise:
      raise(value);
      return true;
    default:
      return false;
  }
}

}  // namespace tpu::model
