// Counters of filled and free infeed slots. Law: spec/regs/infeed.toml.
#pragma once

#include <cstdint>

#include "mgmt/irq.hpp"
#include "mgmt/reg_block.hpp"

namespace tpu::model {

class Infeed : public RegBlock {
 public:
  explicit Infeed(Irq& irq) : irq_(irq) {}

  void reset() { full_ = free_ = want_ = 0; }
  void visit_state(spec::Archive& archive) { archive(full_, free_, want_); }
  bool read(uint32_t offset, uint32_t& value) override;
  bool write(uint32_t offset, uint32_t value) override;

 private:
  void check();

  Irq& irq_;
  uint32_t full_ = 0;
  uint32_t free_ = 0;
  uint32_t want_ = 0;
};

}  // namespace tpu::model
