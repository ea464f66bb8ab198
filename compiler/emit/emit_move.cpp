// Kernels that only move data: concatenation, and results that could not be written where they are
// made.
#include <algorithm>

#include "emit/emitter.hpp"

namespace tpu::compiler {

void Emitter::place_result(Buffer& out) {
  if (out.bytes <= resident_limit()) {
    try {
      out.vmem = place(out);
      return;
    } catch (const VmemFull&) {
      out.vmem = -1;
    }
  }
  give_home(out);
}

void Emitter::finish_result(Buffer& out, uint32_t id) {
  if (out.vmem < 0) {
    out.in_hbm = true;
  } else if (out.must_store) {
    store(out, id);
  }
}

void Emitter::emit_concatenate(const Kernel& k) {
  const uint32_t id = op_id(k);
  const Op& op = *k.ops[0];
  Buffer& out = buffer(k.out);
  if (halos_.contains(k.out)) {
    out.in_hbm = true;  // as far as its readers see
    return;
  }
  const int64_t bytes = elem_bytes(op.type().elem);
  const auto dim = static_cast<size_t>(op.as<DimAttrs>().dim);
  int64_t outer = 1, inner = bytes;
  for (size_t d = 0; d < op.type().dims.size(); ++d) {
    (d < dim ? outer : inner) *= d == dim ? 1 : op.type().dims[d];
  }
  pinned_ = {&out};
  place_result(out);
  int64_t at = 0;
  for (size_t i = 0; i < k.reads.size(); ++i) {
    Buffer& b = buffer(k.reads[i]);
    const int64_t run = op.operand_type(i).dims[dim] * inner;
    if (run > 0 && outer > 0) {
      const spec::Addr src = where(b);
      const spec::Addr dst = where(out, at);
      copy(src, dst, bytes,
           {{outer, run, op.type().dims[dim] * inner}, {run / bytes, bytes, bytes}}, id);
    }
    at += run;
  }
  finish_result(out, id);
  pinned_.clear();
}

// Arguments that are results too, in slots that other results will take, move to scratch first.
void Emitter::save_overwritten_arguments(uint32_t id) {
  if (arguments_saved_) {
    return;
  }
  arguments_saved_ = true;
  for (const Kernel& k : kernels_.kernels) {
    if (k.kind != KernelClass::kCopyOut || result_home_[k.result] != nullptr) {
      continue;
    }
    Buffer& b = buffer(k.reads[0]);
    if (b.slot < 0 || b.scratch || b.vmem >= 0) {
      continue;
    }
    for (const Kernel& w : kernels_.kernels) {
      const int target = first_result_slot_ + static_cast<int>(w.result);
      if (w.kind != KernelClass::kCopyOut || w.order == k.order ||
          listing.root_slot(target) != listing.root_slot(b.slot) ||
          result_home_[w.result] == k.reads[0]) {
        continue;
      }
      const spec::Addr from = hbm(b);
      b.slot = -1;
      give_home(b);
      copy_bytes(from, hbm(b), b.bytes, elem_bytes(b.value->type.elem), id);
      break;
    }
  }
}

void Emitter::emit_copy_out(const Kernel& k) {
  const uint32_t id = op_id(k);
  save_overwritten_arguments(id);
  Buffer& b = buffer(k.reads[0]);
  const int slot = first_result_slot_ + static_cast<int>(k.result);
  if (b.bytes == 0 || result_home_[k.result] == k.reads[0]) {
    return;
  }
  const bool same_place = b.slot >= 0 && !b.scratch && b.in_hbm && b.offset == 0 &&
                          listing.root_slot(slot) == listing.root_slot(b.slot);
  if (same_place) {
    return;
  }
  const spec::Addr src = where(b);
  copy_bytes(src, hbm_addr(slot, 0), b.bytes, elem_bytes(b.value->type.elem), id);
}

}  // namespace tpu::compiler
