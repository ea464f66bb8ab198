// Where a block tells that one of its registers has another value: RegisterEvent. Those of a chip
// are of all cores.
#pragma once

#include "kernel/cycles.hpp"
#include "probe/probe_set.hpp"

namespace tpu::model {

class RegisterProbe {
 public:
  // Nobody listens where `set` is null.
  RegisterProbe(const ProbeSet* set, RegisterEvent::Block block, uint32_t index)
      : set_(set),
        block_(block),
        index_(index),
        of_(block == RegisterEvent::Block::kChipPage ? kAllCores : core_bit(index)) {}

  void tell(uint32_t offset, uint32_t value) const {
    if (set_ == nullptr) {
      return;
    }
    set_->tell<RegisterEvent>(of_, ProbeEvent::kRegister, &ProbeSink::device_register, [&] {
      return RegisterEvent{.cycle = now_cycles(),
                           .block = block_,
                           .index = index_,
                           .offset = offset,
                           .value = value};
    });
  }

 private:
  const ProbeSet* set_;
  RegisterEvent::Block block_;
  uint32_t index_;
  CoreMask of_;
};

}  // namespace tpu::model
