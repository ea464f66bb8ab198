// Text of kernels, for readers.
#include <array>

#include "kernel/kernels.hpp"

namespace tpu::compiler {

namespace {

std::string print_program(const KernelProgram& program, const std::string& indent) {
  static constexpr std::array kNames = {
      "loop",     "contract",      "concatenate",    "pad",  "all_reduce", "copy_out", "indexed",
      "exchange", "dynamic_slice", "dynamic_update", "host", "while",      "branch",   "yield"};
  static_assert(kNames.size() == static_cast<size_t>(KernelClass::kYield) + 1);
  std::string out;
  for (const Kernel& k : program.kernels) {
    out += indent + std::to_string(k.order) + ": " + kNames[static_cast<size_t>(k.kind)];
    if (k.kind == KernelClass::kLoop) {
      for (const Loop& l : k.loop().nest.loops) {
        out += (l.reduced ? " r" : " ") + std::to_string(l.n);
      }
    }
    if (k.kind == KernelClass::kContract) {
      out += " b" + std::to_string(Contraction::count(k.contract().dot.batch)) + " m" +
             std::to_string(Contraction::count(k.contract().dot.m)) + " n" +
             std::to_string(Contraction::count(k.contract().dot.n)) + " k" +
             std::to_string(Contraction::count(k.contract().dot.k));
    }
    out += " (" + std::to_string(k.reads.size()) + " read, " + std::to_string(k.writes.size()) +
           " written):";
    for (const Op* op : k.ops) {
      out += ' ' + std::string(kind_name(op->kind));
    }
    if (k.control().counted) {
      out += ", " + std::to_string(k.control().counted->trips) + " times";
    }
    out += '\n';
    for (const auto& region : k.control().regions) {
      if (region) {
        out += indent + "  region:\n" + print_program(*region, indent + "  ");
      }
    }
  }
  return out;
}

}  // namespace

std::string print(const KernelProgram& program) { return print_program(program, ""); }

}  // namespace tpu::compiler
