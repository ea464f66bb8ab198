// The binding slots of a program: arguments, results, constants, scratch; and the values that lie
// in them when it starts. A result that takes the memory of a donated argument has that argument's
// slot, and none of its own.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "kernel/kernels.hpp"
#include "program/listing.hpp"

namespace tpu::compiler {

// Bytes of a slot from `offset` on.
struct SlotPlace {
  int slot = -1;
  int64_t offset = 0;
};

struct ResultPlace : SlotPlace {
  const Value* replaces = nullptr;  // donated argument that lies there
};

struct Slots {
  std::vector<SlotInfo> list;
  std::vector<std::vector<std::byte>> constants;
  std::vector<std::pair<const Value*, SlotPlace>> homes;  // arguments and constants
  std::vector<ResultPlace> results;                       // by value that the graph returns
  int scratch = -1;
};

// Throws Error if arguments, results and constants do not fit into `hbm_bytes` of HBM.
Slots make_slots(const Module& module, const KernelProgram& kernels, int64_t hbm_bytes);

}  // namespace tpu::compiler
