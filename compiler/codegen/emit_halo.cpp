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
                    [](const PadRange& r) { return r.n == 0; })) {
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
    const int64_t step = box.src / h.pitch[d];
    if (regular && at + (box.n - 1) * step < h.dims[d] &&
        (step == 1 || step % h.ranges[d].step == 0)) {
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

namespace {

// Of the `n` positions from `at` in steps of `step`: those that hold elements of the operand.
struct Hits {
  int64_t first = 0, n = 0, every = 1;  // positions: the first, how many, one in `every`
  int64_t element = 0, stride = 1;      // of the operand
};

Hits hits_of(const PadRange& r, int64_t at, int64_t n, int64_t step) {
  Hits h;
  if (step == 1) {
    h.every = r.step;
    const int64_t i = std::clamp<int64_t>(ceil_div(at - r.at, r.step), 0, r.n);
    const int64_t end = std::clamp<int64_t>(ceil_div(at + n - r.at, r.step), i, r.n);
    h.n = end - i;
    h.first = r.at + i * r.step - at;
    h.element = r.first + i;
    return h;
  }
  h.stride = step / r.step;
  if ((at - r.at) % r.step != 0) {
    return h;  // between them
  }
  const int64_t i = (at - r.at) / r.step;  // at position 0; may be negative
  h.first = std::clamp<int64_t>(ceil_div(-i, h.stride), 0, n);
  h.n = std::clamp<int64_t>(ceil_div(r.n - i, h.stride), h.first, n) - h.first;
  h.element = r.first + i + h.first * h.stride;
  return h;
}

}  // namespace

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
    const Hits hits = hits_of(h.ranges[d], first / h.pitch[d] % h.dims[d], n, step);
    empty = empty || hits.n == 0;
    box.push_back({n, 0, dst});
    ranges.push_back({0, hits.n, hits.first, hits.every});
    inside.push_back({hits.n, hits.stride * k.source.stride[d] * bytes, dst * hits.every});
    source += hits.element * k.source.stride[d];
    skipped += hits.first * dst;
  }
  if (empty || std::any_of(ranges.begin(), ranges.end(),
                           [](const PadRange& r) { return r.n > 1 && r.step > 1; })) {
    fill_box(vmem_addr(address), bytes, box, h.pattern, id);
  } else {
    fill_outside(vmem_addr(address), bytes, box, ranges, h.pattern, id);
  }
  if (empty) {
    return;
  }
  copy(where(buffer(k.reads[0]), source * bytes), vmem_addr(address + skipped), bytes, inside, id);
}

}  // namespace tpu::compiler
