// Values that lie nowhere (virtual pads): a large padded or concatenated value whose readers bring
// it into VMEM in boxes is not made in HBM. Each box is read from the operands, and what lies in
// none is filled (emit/boxes.cpp).
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "kernel/kernels.hpp"

namespace tpu::compiler {

// Where the operand's elements of one dimension go in a padded result.
struct PadRange {
  int64_t first = 0;  // element of the operand that lands first
  int64_t n = 0;      // elements that land; the others are cropped
  int64_t at = 0;     // position of the first in the result
  int64_t step = 1;   // between positions
};

// Where the operand of a pad lies in its result; the constant that is around it.
std::vector<PadRange> pad_ranges(const Op& op);
uint64_t pattern_of(const Dense& constant);

struct VirtualPad {
  struct Part {
    const Value* base = nullptr;
    View source;                   // strides of the base along the dims
    std::vector<PadRange> ranges;  // where its elements are
  };
  Dims dims, pitch;
  std::vector<Part> parts;
  std::optional<uint64_t> pattern;  // of what is in no part; none: nothing is
};

using VirtualPads = std::map<const Value*, VirtualPad>;  // looked up only

// Of the values larger than `whole_limit`, which lie in VMEM as a whole otherwise.
VirtualPads find_virtual_pads(const Module& module, const KernelProgram& kernels,
                              int64_t whole_limit);

}  // namespace tpu::compiler
