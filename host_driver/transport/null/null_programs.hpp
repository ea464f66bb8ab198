// What the launches of a null board do: a step runs when all cores of its gang have started it.
#pragma once

#include <vector>

#include "tpu/transport.hpp"
#include "transport/null/null_core.hpp"

namespace tpu::driver {

class NullPrograms {
 public:
  explicit NullPrograms(NullCores& board) : board_(board) {}

  /// Runs a step of a gang, or lets it hang if a knob says so; false: no gang is ready.
  bool run_one();
  /// A launch runs for as long as the host lets it.
  bool any_endless() const;
  void end_endless();
  void tell(TransportStats& stats) const;

 private:
  using Gang = std::vector<NullCore*>;
  Gang gang_of(const NullCore& core) const;
  bool hang(const Gang& gang);
  bool lose_hart(const Gang& gang);
  bool fault(const Gang& gang);

  NullCores& board_;
};

}  // namespace tpu::driver
