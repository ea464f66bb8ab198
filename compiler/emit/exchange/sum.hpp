// Sums of an all_reduce: own + arrived.
#pragma once

#include <cstdint>
#include <vector>

#include "emit/command_sink.hpp"

namespace tpu::compiler {

// The program of a reduction and its element type.
struct SumProgram {
  int program = -1;
  uint8_t type = 0;
  int64_t elem_bytes = 4;
};

SumProgram sum_program(CommandSink& sink, const Op& op);
// out = a (op) b, dense. Windows stand in for addresses with a register.
void combine(CommandSink& sink, const SumProgram& p, const spec::Addr& a, const spec::Addr& b,
             const spec::Addr& out, int64_t bytes, std::vector<MemRange> windows, uint32_t id);

}  // namespace tpu::compiler
