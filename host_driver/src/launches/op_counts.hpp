// OpCounts: where the launches of a board spent their time, by program and operation.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "exe/executable.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {

class OpCounts {
 public:
  void add(const std::shared_ptr<const exe::ExecutableT>& program,
           const std::vector<OpTally>& launch);
  void clear() { programs_.clear(); }
  /// Programs in the order of their first launch, their operations in that of the program, behind
  /// them what belongs to none.
  std::vector<OpTime> list() const;

 private:
  struct Program {
    std::shared_ptr<const exe::ExecutableT> executable;
    std::map<uint32_t, OpTally> ops;
  };
  std::vector<Program> programs_;
};

}  // namespace tpu::driver
