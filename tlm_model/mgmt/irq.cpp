// Interrupt sources: registers.
#include "mgmt/irq.hpp"

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
      set_pending(pending_ & ~value);
      return true;
    default:
      return false;
  }
}

bool Irq::peek(uint32_t offset, uint32_t& value) {
  if (offset == spec::irq::kTake) {
    value = pending_ & enable_;
    return true;
  }
  return read(offset, value);
}

bool Irq::write(uint32_t offset, uint32_t value) {
  switch (offset) {
    case spec::irq::kPending:
      set_pending(pending_ & ~value);
      return true;
    case spec::irq::kEnable:
      set_enable(value);
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
