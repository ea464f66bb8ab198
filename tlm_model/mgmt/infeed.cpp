// Infeed counters: registers.
#include "mgmt/infeed.hpp"

#include "tpu/spec/infeed_regs.hpp"
#include "tpu/spec/irq_regs.hpp"

namespace tpu::model {

void Infeed::check() {
  if (want_ != 0 && full_ >= want_) {
    irq_.raise(spec::irq::kInfeed);
  }
}

bool Infeed::read(uint32_t offset, uint32_t& value) {
  switch (offset) {
    case spec::infeed::kFull:
      value = full_;
      return true;
    case spec::infeed::kFree:
      value = free_;
      return true;
    case spec::infeed::kWant:
      value = want_;
      return true;
    default:
      return false;
  }
}

bool Infeed::write(uint32_t offset, uint32_t value) {
  switch (offset) {
    case spec::infeed::kFull:
      full_ = value;
      check();
      return true;
    case spec::infeed::kPush:
      full_ += value;
      check();
      return true;
    case spec::infeed::kFree:
      free_ = value;
      return true;
    case spec::infeed::kPop:
      free_ += value;
      return true;
    case spec::infeed::kWant:
      want_ = value;
      check();
      return true;
    default:
      return false;
  }
}

}  // namespace tpu::model
