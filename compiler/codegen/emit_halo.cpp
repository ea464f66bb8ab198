// Padded values that lie nowhere: a large padded value whose readers bring it into VMEM in boxes is
// not made in HBM. Each box is read from the operand, and what lies outside of that is filled.
#include <algorithm>

#include "codegen/emitter.hpp"

namespace tpu::compiler {

namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Dim in which a stride of `step` elements moves; dims of one element never do.
size_t walked_dim(const Dims& dims, const Dims& pitch, int64_t step) {
  size_t d = 0;
  while (d + 1 < dims.size() && (dims[d] == 1 || pitch[d] > step)) {
    ++d;
  }
  return d;
}

}  // namespace

// Values that readers other than loops and contractions, or readers in regions, want stay buffers;
// so do small ones, which lie in VMEM as a whole. An operand that may be overwritten in place has
// to be read at once.
void Emitter::plan_halos() {
  for (const Kernel& k : kernels_.kernels) {
    if (k.kind != KernelClass::kPad || k.out->type.bytes() <= resident_limit()) {
      continue;
    }
    const Op& op = *k.ops[0];
    const Value* fill_value = op.operands[1];
    Halo halo{&k, pad_ranges(op), op.type().dims, row_major_strides(op.type().dims), 0};
    if (fill_value->def == nullptr || fill_value->def->kind != Kind::kConstant ||
        std::any_of(halo.ranges.begin(), halo.ranges.end(),
                    [](const PadRange& r) { return r.step > 1 || r.n == 0; })) {
      continue;
    }
    const Value* base = k.reads[0];
    if (halos_.contains(base) || (base->def == nullptr && is_donated(base))) {
      continue;
    }
    bool in_boxes = true;
    for_each_kernel(kernels_, [&](const Kernel& r) {
      const bool reads = std::find(r.reads.begin(), r.reads.end(), k.out) != r.reads.end();
      in_boxes = in_boxes && (!reads || r.kind == KernelClass::kLoop ||
                              (r.kind == KernelClass::kContract && r.dot.batch.empty()));
    });
    if (in_boxes) {
      halo.pattern = pattern_of(fill_value->def->as<ConstantAttrs>().value);
      halos_.emplace(k.out, std::move(halo));
    }
  }
}

bool Emitter::is_donated(const Value* argument) const {
  const Function& main = *module_.main;
  for (size_t i = 0; i < main.args.size(); ++i) {
    if (main.body.args[i].get() == argument) {
      return main.args[i].alias_result >= 0;
    }
  }
  return false;
}

// A box of a buffer to VMEM. `dims` in elements, outermost first; it starts at element `first`.
void Emitter::load_box(const Buffer& b, int64_t first, std::vector<CopyDim> dims, int64_t address,
                       uint32_t id) {
  const int64_t bytes = elem_bytes(b.value->type.elem);
  for (CopyDim& d : dims) {
    d.dst *= bytes;
  }
  if (const auto it = halos_.find(b.value); it != halos_.end()) {
    load_padded(it->second, first, std::move(dims), address, id);
    return;
  }
  for (CopyDim& d : dims) {
    d.src *= bytes;
  }
  copy(where(b, first * bytes), vmem_addr(address), bytes, std::move(dims), id);
}

// Cuts the box until each of its dims stays inside of one dim of the padded value: a run over the
// end of a row becomes the rest of the row, whole rows, and the start of one.
void Emitter::load_padded(const Halo& h, int64_t first, std::vector<CopyDim> dims, int64_t address,
                          uint32_t id) {
  std::erase_if(dims, [](const CopyDim& d) { return d.n == 1; });
  std::vector<size_t> walker(h.dims.size(), dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    const CopyDim box = dims[i];
    const size_t d = walked_dim(h.dims, h.pitch, box.src);
    const int64_t at = first / h.pitch[d] % h.dims[d];
    const auto part = [&](std::vector<CopyDim> with, int64_t skipped) {
      std::vector<CopyDim> rest = dims;
      rest.erase(rest.begin() + static_cast<ptrdiff_t>(i));
      rest.insert(rest.begin() + static_cast<ptrdiff_t>(i), with.begin(), with.end());
      load_padded(h, first + skipped * box.src, std::move(rest), address + skipped * box.dst, id);
    };
    const bool regular = box.src > 0 && box.src % h.pitch[d] == 0 && walker[d] == dims.size();
    if (regular && at + (box.n - 1) * (box.src / h.pitch[d]) < h.dims[d]) {
      walker[d] = i;
      continue;
    }
    const int64_t row = h.dims[d];
    if (regular && box.src == h.pitch[d] && d > 0 && at > 0) {
      part({{row - at, box.src, box.dst}}, 0);
      part({{box.n - (row - at), box.src, box.dst}}, row - at);
    } else if (regular && box.src == h.pitch[d] && d > 0) {
      part({{box.n / row, box.src * row, box.dst * row}, {row, box.src, box.dst}}, 0);
      if (box.n % row > 0) {
        part({{box.n % row, box.src, box.dst}}, box.n / row * row);
      }
    } else {
      for (int64_t j = 0; j < box.n; ++j) {
        part({}, j);
      }
    }
    return;
  }
  load_clipped(h, first, dims, walker, address, id);
}

// `walker[d]`: which of the box's dims walks through dim d of the padded value; none: one element.
void Emitter::load_clipped(const Halo& h, int64_t first, const std::vector<CopyDim>& dims,
                           const std::vector<size_t>& walker, int64_t address, uint32_t id) {
  const Kernel& k = *h.kernel;
  const int64_t bytes = elem_bytes(k.out->type.elem);
  std::vector<CopyDim> box, inside;
  std::vector<PadRange> ranges;
  int64_t source = k.source.offset, skipped = 0;
  bool empty = false;
  for (size_t d = 0; d < h.dims.size(); ++d) {
    const bool walks = walker[d] < dims.size();
    const int64_t n = walks ? dims[walker[d]].n : 1, dst = walks ? dims[walker[d]].dst : 0,
                  step = walks ? dims[walker[d]].src / h.pitch[d] : 1;
    const PadRange& r = h.ranges[d];
    const int64_t at = first / h.pitch[d] % h.dims[d];
    const int64_t lo = std::clamp<int64_t>(ceil_div(r.at - at, step), 0, n);
    const int64_t hi = std::clamp<int64_t>(ceil_div(r.at + r.n - at, step), lo, n);
    empty = empty || lo == hi;
    box.push_back({n, 0, dst});
    ranges.push_back({0, hi - lo, lo, 1});
    inside.push_back({hi - lo, step * k.source.stride[d] * bytes, dst});
    source += (r.first + at + lo * step - r.at) * k.source.stride[d];
    skipped += lo * dst;
  }
  if (empty) {
    fill_box(vmem_addr(address), bytes, box, h.pattern, id);
    return;
  }
  fill_outside(vmem_addr(address), bytes, box, ranges, h.pattern, id);
  copy(where(buffer(k.reads[0]), source * bytes), vmem_addr(address + skipped), bytes, inside, id);
}

}  // namespace tpu::compiler
