// Building blocks of vector programs: instructions on virtual registers, operation selection,
// register allocation. Used by vpu_gen.cpp only.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ir/graph.hpp"
#include "program/listing.hpp"

namespace tpu::compiler {

inline constexpr size_t kBody = 4;  // sections: pre, enter0..2, body, leave2..0, post

struct VirtualInsn {
  spec::VpuOp op = spec::VpuOp::kMov;
  int rd = -1;  // virtual registers, -1: none
  std::array<int, 3> rs{-1, -1, -1};
  uint32_t imm = 0;
  uint8_t mode = 0;  // store
};
using VpuSections = std::array<std::vector<VirtualInsn>, 9>;

class VpuSelector {
 public:
  VpuSelector(std::vector<VirtualInsn>& out, int& next) : out_(out), next_(next) {}

  // Appends; operands that the form does not have are ignored.
  void put(spec::VpuOp op, int rd, int a, int b, int c, uint32_t imm, uint8_t mode = 0);
  int make(spec::VpuOp op, int a, int b = -1, int c = -1, uint32_t imm = 0);

  // Instructions of an elementwise graph op on 32-bit lanes. Throws Error for what lanes cannot do.
  int elementwise(const Op& op, const std::vector<int>& in);

  // Integers that live in less than 32 bits wrap to their width; `with_sign`: as signed ones.
  int narrow(int x, Elem to, bool with_sign = false);

 private:
  int unary(const Op& op, int x);
  int binary(const Op& op, int a, int b);
  int compare(const Op& op, int a, int b);
  int convert(const Op& op, int x);
  int unsigned_bits(int x, Elem e);
  int bitcast(const Op& op, int x);
  int reduce_precision(const Op& op, int x);
  int total_order(int x);
  int imm(uint32_t bits) { return make(spec::VpuOp::kImm, -1, -1, -1, bits); }

  std::vector<VirtualInsn>& out_;
  int& next_;
};

uint32_t reduce_identity(const Op& op, Kind kind, Elem elem);
spec::VpuOp reduce_op(const Op& op, Kind kind, Elem elem);
spec::VpuReduce reduce_tree(const Op& op, Kind kind, Elem elem);

// Linear scan over the sections. Values that cross sections keep their register for the whole
// program; loads, immediates and indices are made again when registers run out. Throws Error when
// even that does not help.
VpuProgram allocate_registers(const VpuSections& sections, int virtual_registers);

}  // namespace tpu::compiler
