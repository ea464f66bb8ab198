// The op table of an executable: one entry per kernel. Commands name their entry.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exe/executable.hpp"
#include "kernel/kernels.hpp"

namespace tpu::compiler {

class OpTable {
 public:
  uint32_t id(const Kernel& k);                 // added if it is new
  std::optional<int> order(uint32_t id) const;  // of the kernel with that entry
  // Undoes what has been added and counted since.
  struct Mark {
    size_t ops;
    uint64_t matmul_flops;
  };
  Mark mark() const { return {ops_.size(), matmul_flops_}; }
  void undo(const Mark& mark);
  void count_flops(const Kernel& k);
  void enter_loop(int64_t trips) { times_ *= trips; }
  void leave_loop(int64_t trips) { times_ /= trips; }

  const std::vector<exe::OpInfoT>& list() const { return ops_; }
  uint64_t matmul_flops() const { return matmul_flops_; }

 private:
  uint64_t flops_of(const Kernel& k) const;

  std::vector<exe::OpInfoT> ops_;
  std::map<int, uint32_t> ids_;  // by order of the kernel
  int64_t times_ = 1;            // iterations of the counted loops around
  uint64_t matmul_flops_ = 0;
};

}  // namespace tpu::compiler
