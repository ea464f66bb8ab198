// Vector programs: the body of a loop nest as VPU instructions with allocated registers.
//   before   y = exp(x - broadcast(m))
//   after    load r0,a0; load r1,a1; sub_f r0,r0,r1; exp_f r0,r0; store r0,a2
// Loops that carry reductions run innermost; accumulators live in registers around them and are
// carried from command to command through VMEM when the reduced range is cut.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/error.hpp"
#include "program/listing.hpp"
#include "vpu/nest.hpp"

namespace tpu::compiler {

// What access number i of the program stands for.
struct AccessRole {
  enum class Kind : uint8_t { kLoad, kIndex, kStore, kReduceStore, kCarry };
  Kind kind = Kind::kLoad;
  int index = 0;  // nest access, nest index or node
};

struct VpuGenOptions {
  std::vector<int> stores;  // nodes whose results go to memory (reduce nodes too)
  bool first = true;        // reduce: accumulators start from the identity, else from the carry
  bool last = true;         // reduce: results are finished, else accumulators go to the carry
  int row_loop = -1, col_loop = -1;  // nest loops on sublanes and lanes; flat: col_loop alone
  bool flat = false;
  // Loops of the command inside of the one on lanes, if operands that differ along the lanes alone
  // are to be loaded outside of them.
  std::vector<int> inside_lanes;
};

struct VpuGenResult {
  VpuProgram program;
  std::vector<AccessRole> roles;
  bool uses_partition = false;
};

// Operands that differ along the lanes, but not in the loops `inside_lanes`.
int count_rows_of_lanes(const Nest& nest, int col_loop, const std::vector<int>& inside_lanes);

// Order of the nest's loops in the command, outermost first: kept loops, then reduced ones.
std::vector<int> command_order(const Nest& nest);

// A loop body that needs more registers than there are.
struct OutOfRegisters : Error {
  using Error::Error;
};

// Throws Error for ops and types without vector instructions, OutOfRegisters for large bodies.
VpuGenResult generate_vpu(const Nest& nest, const VpuGenOptions& options);

spec::Elem isa_elem(Elem e);

}  // namespace tpu::compiler
