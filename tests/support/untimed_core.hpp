// Untimed machine: runs an executable on n cores command by command, honouring queues, waits and
// signals, in an order drawn from a seed. Data work is that of the model's VPU and scalar MXU.
// Finds deadlocks, accesses out of bounds, semaphores that are not zero at the end, and pairs of
// conflicting accesses that no chain of signals orders. Knows no time; for tests of the compiler.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "exe/executable.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::test {

struct UntimedOptions {
  uint32_t seed = 0;        // 0: queues in fixed rotation, else a random ready queue each time
  bool check_order = true;  // happens-before check of all byte ranges
  bool poison = true;       // VMEM and scratch start as NaN patterns
};

struct UntimedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class UntimedMachine {
 public:
  UntimedMachine(const exe::ExecutableT& executable, const spec::BoardParams& board,
                 UntimedOptions options = {});
  ~UntimedMachine();

  // Local bytes of argument `index` on `core`.
  void set_argument(int core, size_t index, const std::vector<uint8_t>& bytes);
  void run();  // one launch of one step; throws UntimedError
  std::vector<uint8_t> result(int core, size_t index) const;
  std::vector<uint8_t> argument(int core, size_t index) const;
  int64_t commands() const;  // of one core

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tpu::test
