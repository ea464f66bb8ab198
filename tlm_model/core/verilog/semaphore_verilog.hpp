// rtl/sem/semaphores.sv, Verilated, on the time of the board: inputs belong to the cycle in which
// they are given, outputs are those of the cycle that is asked for. The clock runs only where
// something moves. No SystemC here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace tpu::model {

class SemaphoreVerilog {
 public:
  // Throws std::runtime_error that names the sizes that are built in if these are not among them,
  // or if the host lacks AVX2.
  // `failed` is told of each edge at which assertions failed, with the first.
  using FailureObserver = std::function<void(uint64_t cycle, const std::string& text)>;
  SemaphoreVerilog(uint32_t count, uint64_t delay, FailureObserver failed = {});
  ~SemaphoreVerilog();
  SemaphoreVerilog(const SemaphoreVerilog&) = delete;
  SemaphoreVerilog& operator=(const SemaphoreVerilog&) = delete;

  // Cycles never go back.
  void add(uint64_t cycle, uint32_t semaphore, uint32_t amount);
  void take(uint64_t cycle, uint32_t semaphore, uint32_t amount);
  void clear(uint64_t cycle);

  // After what was taken in this cycle.
  uint32_t value(uint64_t cycle, uint32_t semaphore);
  // A signal would have become visible in this cycle, passed the limit and was dropped.
  bool overflow(uint64_t cycle, uint32_t semaphore);
  uint32_t nonzero(uint64_t cycle);
  uint32_t first_nonzero(uint64_t cycle);  // the number of semaphores if there is none

 private:
  struct Unit;
  void advance(uint64_t cycle);
  std::unique_ptr<Unit> unit_;
};

}  // namespace tpu::model
