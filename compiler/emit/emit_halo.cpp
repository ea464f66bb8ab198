// Values that lie nowhere: a large padded or concatenated value whose readers bring it into VMEM in
// boxes is not made in HBM. Each box is read from the operands, and what lies in none is filled.
#include <algorithm>

#include "emit/emitter.hpp"

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

// From the last kernel to the first: a value may be part of a later one that has no buffer either.
void Emitter::plan_halos() {
  constexpr int kMostInside = 16;      // one in the other: loads look through all of them
  std::map<const Value*, int> inside;  // of a halo: halos around it; looked up only
  const auto around = [&](const Value* v) {
    int n = 0;
    for_each_kernel(kernels_, [&](const Kernel& r) {
      const auto it = inside.find(r.out);
      if (it != inside.end() && std::find(r.reads.begin(), r.reads.end(), v) != r.reads.end()) {
        n = std::max(n, it->second + 1);
      }
    });
    return n;
  };
  for (auto k = kernels_.kernels.rbegin(); k != kernels_.kernels.rend(); ++k) {
    const bool moves = k->kind == KernelClass::kPad || k->kind == KernelClass::kConcatenate;
    if (moves && k->out->type.bytes() > resident_limit() && is_read_in_boxes(k->out)) {
      const int depth = around(k->out);
      auto halo = halo_of(*k);
      if (halo && depth < kMostInside) {
        inside[k->out] = depth;
        halos_.emplace(k->out, std::move(*halo));
      }
    }
  }
}

// Readers other than loops and contractions, or in regions, want a buffer; so do small values,
// which lie in VMEM as a whole.
bool Emitter::is_read_in_boxes(const Value* v) const {
  bool in_boxes = true;
  for_each_kernel(kernels_, [&](const Kernel& r) {
    const bool reads = std::find(r.reads.begin(), r.reads.end(), v) != r.reads.end();
    in_boxes = in_boxes && (!reads || r.kind == KernelClass::kLoop || halos_.contains(r.out) ||
                            (r.kind == KernelClass::kContract && r.dot.batch.empty()));
  });
  return in_boxes;
}

// An operand that may be overwritten in place has to be read at once.
std::optional<Halo> Emitter::halo_of(const Kernel& k) const {
  const Op& op = *k.ops[0];
  Halo h{op.type().dims, row_major_strides(op.type().dims), {}, std::nullopt};
  if (k.kind == KernelClass::kPad) {
    const Value* fill_value = op.operands[1];
    if (fill_value->def == nullptr || fill_value->def->kind != Kind::kConstant) {
      return std::nullopt;
    }
    h.parts.push_back({k.reads[0], k.source, pad_ranges(op)});
    h.pattern = pattern_of(fill_value->def->as<ConstantAttrs>().value);
  } else {
    const auto dim = static_cast<size_t>(op.as<DimAttrs>().dim);
    int64_t at = 0;
    for (size_t i = 0; i < k.reads.size(); ++i) {
      const Dims& dims = op.operand_type(i).dims;
      Halo::Part part{k.reads[i], {0, row_major_strides(dims)}, {}};
      for (size_t d = 0; d < dims.size(); ++d) {
        part.ranges.push_back({0, dims[d], d == dim ? at : 0, 1});
      }
      at += dims[dim];
      h.parts.push_back(std::move(part));
    }
  }
  for (const Halo::Part& part : h.parts) {
    if ((part.base->def == nullptr && is_donated(part.base)) ||
        std::any_of(part.ranges.begin(), part.ranges.end(),
                    [](const PadRange& r) { return r.n == 0; })) {
      return std::nullopt;
    }
  }
  return h;
}

// What a value without a buffer is made of lives until its last reader.
void Emitter::read_halo_at(const Value* v, int order) {
  if (const auto halo = halos_.find(v); halo != halos_.end()) {
    for (const Halo::Part& part : halo->second.parts) {
      buffers_.at(part.base).reads.push_back(order);
      read_halo_at(part.base, order);
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
  load_from(b.value, first, std::move(dims), address, id);
}

// `dims`: src in elements, dst in bytes.
void Emitter::load_from(const Value* v, int64_t first, std::vector<CopyDim> dims, int64_t address,
                        uint32_t id) {
  if (const auto it = halos_.find(v); it != halos_.end()) {
    load_padded(it->second, first, std::move(dims), address, id);
    return;
  }
  const int64_t bytes = elem_bytes(v->type.elem);
  for (CopyDim& d : dims) {
    d.src *= bytes;
  }
  copy(where(buffer(v), first * bytes), vmem_addr(address), bytes, std::move(dims), id);
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
        (step == 1 || step % h.parts[0].ranges[d].step == 0)) {
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
  for (const Halo::Part& part : h.parts) {
    load_part(h, part, first, dims, walker, address, id);
  }
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

// `walker[d]`: which of the box's dims walks through dim d of the value; none: one element.
void Emitter::load_part(const Halo& h, const Halo::Part& part, int64_t first,
                        const std::vector<CopyDim>& dims, const std::vector<size_t>& walker,
                        int64_t address, uint32_t id) {
  const int64_t bytes = elem_bytes(part.base->type.elem);
  std::vector<CopyDim> box, inside;
  std::vector<PadRange> ranges;
  int64_t source = part.source.offset, skipped = 0;
  bool empty = false, spread = false;
  for (size_t d = 0; d < h.dims.size(); ++d) {
    const bool walks = walker[d] < dims.size();
    const int64_t n = walks ? dims[walker[d]].n : 1, dst = walks ? dims[walker[d]].dst : 0,
                  step = walks ? dims[walker[d]].src / h.pitch[d] : 1;
    const Hits hits = hits_of(part.ranges[d], first / h.pitch[d] % h.dims[d], n, step);
    empty = empty || hits.n == 0;
    spread = spread || (hits.n > 1 && hits.every > 1);
    box.push_back({n, 0, dst});
    ranges.push_back({0, hits.n, hits.first, hits.every});
    inside.push_back({hits.n, hits.stride * part.source.stride[d], dst * hits.every});
    source += hits.element * part.source.stride[d];
    skipped += hits.first * dst;
  }
  if (h.pattern && (empty || spread)) {
    fill_box(vmem_addr(address), bytes, box, *h.pattern, id);
  } else if (h.pattern) {
    fill_outside(vmem_addr(address), bytes, box, ranges, *h.pattern, id);
  }
  if (!empty) {
    load_from(part.base, source, std::move(inside), address + skipped, id);
  }
}

}  // namespace tpu::compiler
