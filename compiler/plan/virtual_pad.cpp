#include "plan/virtual_pad.hpp"

#include <algorithm>
#include <cstring>

namespace tpu::compiler {

std::vector<PadRange> pad_ranges(const Op& op) {
  const auto& a = op.as<PadAttrs>();
  std::vector<PadRange> out(a.low.size());
  for (size_t d = 0; d < out.size(); ++d) {
    PadRange& r = out[d];
    const int64_t n = op.operand_type(0).dims[d];
    r.step = a.interior[d] + 1;
    r.first = a.low[d] < 0 ? (-a.low[d] + r.step - 1) / r.step : 0;
    r.at = a.low[d] + r.first * r.step;
    const int64_t room = op.type().dims[d] - r.at;
    r.n = room <= 0 || n <= r.first ? 0 : std::min((room + r.step - 1) / r.step, n - r.first);
  }
  return out;
}

uint64_t pattern_of(const Dense& constant) {
  uint64_t pattern = 0;
  std::memcpy(&pattern, constant.element(0), static_cast<size_t>(elem_bytes(constant.type.elem)));
  return pattern;
}

namespace {

bool is_donated(const Module& module, const Value* argument) {
  const Function& main = *module.main;
  for (size_t i = 0; i < main.args.size(); ++i) {
    if (main.body.args[i].get() == argument) {
      return main.args[i].alias_result >= 0;
    }
  }
  return false;
}

// Readers other than loops and contractions, or in regions, want a buffer; so do small values,
// which lie in VMEM as a whole.
bool is_read_in_boxes(const KernelProgram& kernels, const VirtualPads& pads, const Value* v) {
  bool in_boxes = true;
  for_each_kernel(kernels, [&](const Kernel& r) {
    const bool reads = std::find(r.reads.begin(), r.reads.end(), v) != r.reads.end();
    in_boxes = in_boxes && (!reads || r.kind == KernelClass::kLoop || pads.contains(r.out) ||
                            (r.kind == KernelClass::kContract && r.contract().dot.batch.empty()));
  });
  return in_boxes;
}

// An operand that may be overwritten in place has to be read at once.
std::optional<VirtualPad> virtual_pad_of(const Module& module, const Kernel& k) {
  const Op& op = *k.ops[0];
  VirtualPad h{op.type().dims, row_major_strides(op.type().dims), {}, std::nullopt};
  if (k.kind == KernelClass::kPad) {
    const Value* fill_value = op.operands[1];
    if (fill_value->def == nullptr || fill_value->def->kind != Kind::kConstant) {
      return std::nullopt;
    }
    h.parts.push_back({k.reads[0], k.move().source, pad_ranges(op)});
    h.pattern = pattern_of(fill_value->def->as<ConstantAttrs>().value);
  } else {
    const auto dim = static_cast<size_t>(op.as<DimAttrs>().dim);
    int64_t at = 0;
    for (size_t i = 0; i < k.reads.size(); ++i) {
      const Dims& dims = op.operand_type(i).dims;
      VirtualPad::Part part{k.reads[i], {0, row_major_strides(dims)}, {}};
      for (size_t d = 0; d < dims.size(); ++d) {
        part.ranges.push_back({0, dims[d], d == dim ? at : 0, 1});
      }
      at += dims[dim];
      h.parts.push_back(std::move(part));
    }
  }
  for (const VirtualPad::Part& part : h.parts) {
    if ((part.base->def == nullptr && is_donated(module, part.base)) ||
        std::any_of(part.ranges.begin(), part.ranges.end(),
                    [](const PadRange& r) { return r.n == 0; })) {
      return std::nullopt;
    }
  }
  return h;
}

}  // namespace

// From the last kernel to the first: a value may be part of a later one that has no buffer either.
VirtualPads find_virtual_pads(const Module& module, const KernelProgram& kernels,
                              int64_t whole_limit) {
  VirtualPads pads;
  constexpr int kMostInside = 16;      // one in the other: loads look through all of them
  std::map<const Value*, int> inside;  // of a virtual pad: those around it; looked up only
  const auto around = [&](const Value* v) {
    int n = 0;
    for_each_kernel(kernels, [&](const Kernel& r) {
      const auto it = inside.find(r.out);
      if (it != inside.end() && std::find(r.reads.begin(), r.reads.end(), v) != r.reads.end()) {
        n = std::max(n, it->second + 1);
      }
    });
    return n;
  };
  for (auto k = kernels.kernels.rbegin(); k != kernels.kernels.rend(); ++k) {
    const bool moves = k->kind == KernelClass::kPad || k->kind == KernelClass::kConcatenate;
    if (moves && k->out->type.bytes() > whole_limit && is_read_in_boxes(kernels, pads, k->out)) {
      const int depth = around(k->out);
      auto pad = virtual_pad_of(module, *k);
      if (pad && depth < kMostInside) {
        inside[k->out] = depth;
        pads.emplace(k->out, std::move(*pad));
      }
    }
  }
  return pads;
}

}  // namespace tpu::compiler
