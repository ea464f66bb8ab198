// CounterReader: the performance counters of all cores: by commands, which wait, or from the debug
// port at any moment. Its calls take the board lock themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "src/door/door.hpp"
#include "src/health/health.hpp"
#include "src/operations/operations.hpp"
#include "src/transfers/board_memory.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {

class CounterReader {
 public:
  struct Hooks {
    /// Waits until the operations up to that number are over.
    std::function<void(uint64_t last)> settle;
    /// What the driver itself counts.
    std::function<void(BoardCounters&)> add_own;
  };
  CounterReader(Door& door, Health& health, const Devices& devices, Operations& operations,
                BoardMemory& memory, const std::unique_ptr<Transport>& transport, Hooks hooks)
      : door_(door),
        health_(health),
        devices_(devices),
        operations_(operations),
        memory_(memory),
        transport_(transport),
        hooks_(std::move(hooks)) {}

  /// Of a board whose cores have that many matrix units.
  void set_mxus(int64_t mxus) { mxus_ = mxus; }

  BoardCounters counters();
  BoardCounters peek();

 private:
  std::shared_ptr<Operation> ask(const Device& device, const std::shared_ptr<StagingRange>& staged,
                                 uint32_t counters) TPU_REQUIRES(board_lock);
  BoardCounters board_counters(std::vector<CoreCounters> cores, const TransportStats& stats);

  Door& door_;
  Health& health_;
  const Devices& devices_;
  Operations& operations_;
  BoardMemory& memory_;
  const std::unique_ptr<Transport>& transport_;
  const Hooks hooks_;
  int64_t mxus_ = 0;
};

}  // namespace tpu::driver
