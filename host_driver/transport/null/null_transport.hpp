// Null transport: a fake board that runs the firmware (firmware/rt, compiled for the host) on fake
// cores, in zero time. Rings, tracks, gangs, HELD and RESUME are the firmware's. It copies and
// fills for real in a sparse HBM. A launch calls an executor, or does nothing at all (outputs keep
// what was in memory). "Cycles" count completions. For tests of the driver: knobs lose doorbells
// and interrupts, spoil entries and firmware images, kill harts.
#pragma once

#include <chrono>
#include <memory>

#include "sync/mutex.hpp"
#include "tpu/transport.hpp"
#include "transport/null/null_knobs.hpp"

namespace tpu::driver {

class NullCore;
class NullPrograms;
struct NullCores;

class NullTransport : public Transport, public NullKnobs {
 public:
  NullTransport(const TransportRequest& request, HostMemory& memory);
  ~NullTransport() override;

  uint32_t read32(int chip, int bar, uint64_t offset) override;
  void write32(int chip, int bar, uint64_t offset, uint32_t value) override;
  void write_block(int chip, int bar, uint64_t offset, std::span<const std::byte> data) override;
  RunOutcome run() override;
  RunOutcome run_until(uint64_t cycle) override;
  void limit_run(std::chrono::nanoseconds limit) override { limit_ = limit; }
  void interrupt() override;
  uint64_t now() override;
  TransportStats stats() override;

  void end_endless();  ///< launches that run for as long as the host lets them end well

 private:
  NullCore& core_at(int chip, uint64_t index);
  void settle();

  const spec::BoardParams params_;
  const uint64_t hash_;
  std::unique_ptr<NullCores> cores_;
  std::unique_ptr<NullPrograms> programs_;
  std::chrono::nanoseconds limit_{0};
  base::Mutex interrupt_mutex_;
  base::CondVar interrupt_turn_;
  bool interrupted_ TPU_GUARDED_BY(interrupt_mutex_) = false;
  uint32_t latched_time_ = 0;
};

}  // namespace tpu::driver
