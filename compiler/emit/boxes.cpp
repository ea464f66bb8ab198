// Boxes of buffers into VMEM, and of values that lie nowhere (plan/virtual_pad.hpp).
#include <algorithm>

#include "emit/context.hpp"
#include "plan/tile_box.hpp"

namespace tpu::compiler {

namespace {

// Dim in which a stride of `step` elements moves; dims of one element never do.
size_t walked_dim(const Dims& dims, const Dims& pitch, int64_t step) {
  size_t d = 0;
  while (d + 1 < dims.size() && (dims[d] == 1 || pitch[d] > step)) {
    ++d;
  }
  return d;
}

}  // namespace

static void load_padded(EmitContext& ctx, const Places& places, const VirtualPad& h, int64_t first,
                        std::vector<CopyDim> dims, int64_t address, uint32_t id);

// `dims`: src in elements, dst in bytes.
static void load_from(EmitContext& ctx, const Places& places, const Value* v, int64_t first,
                      std::vector<CopyDim> dims, int64_t address, uint32_t id) {
  if (const auto it = ctx.pads.find(v); it != ctx.pads.end()) {
    load_padded(ctx, places, it->second, first, std::move(dims), address, id);
    return;
  }
  const int64_t bytes = elem_bytes(v->type.elem);
  for (CopyDim& d : dims) {
    d.src *= bytes;
  }
  ctx.sink.copy(place_of(places.at(v), first * bytes), vmem_addr(address), bytes, std::move(dims),
                id);
}

void load_box(EmitContext& ctx, const Places& places, const Value* v, int64_t first,
              std::vector<CopyDim> dims, int64_t address, uint32_t id) {
  const int64_t bytes = elem_bytes(v->type.elem);
  for (CopyDim& d : dims) {
    d.dst *= bytes;
  }
  load_from(ctx, places, v, first, std::move(dims), address, id);
}

// Cuts the box until each of its dims stays inside of one dim of the padded value: a run over the
// end of a row becomes the rest of the row, whole rows, and the start of one.
static void load_part(EmitContext& ctx, const Places& places, const VirtualPad& h,
                      const VirtualPad::Part& part, int64_t first, const std::vector<CopyDim>& dims,
                      const std::vector<size_t>& walker, int64_t address, uint32_t id);

static void load_padded(EmitContext& ctx, const Places& places, const VirtualPad& h, int64_t first,
                        std::vector<CopyDim> dims, int64_t address, uint32_t id) {
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
      load_padded(ctx, places, h, first + skipped * box.src, std::move(rest),
                  address + skipped * box.dst, id);
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
  for (const VirtualPad::Part& part : h.parts) {
    load_part(ctx, places, h, part, first, dims, walker, address, id);
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
static void load_part(EmitContext& ctx, const Places& places, const VirtualPad& h,
                      const VirtualPad::Part& part, int64_t first, const std::vector<CopyDim>& dims,
                      const std::vector<size_t>& walker, int64_t address, uint32_t id) {
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
    ctx.sink.fill_box(vmem_addr(address), bytes, box, *h.pattern, id);
  } else if (h.pattern) {
    fill_outside(ctx.sink, vmem_addr(address), bytes, box, ranges, *h.pattern, id);
  }
  if (!empty) {
    load_from(ctx, places, part.base, source, std::move(inside), address + skipped, id);
  }
}

}  // namespace tpu::compiler
