// Padding: the operand's box by one strided copy, what is around it by fills. Interior padding is a
// stride of the destination; negative padding crops the box.
#include <algorithm>

#include "emit/exchange/inflight.hpp"

namespace tpu::compiler {

namespace {

// Up to this size one fill of everything is cheaper than a fill for each side.
constexpr int64_t kSmallPadBytes = 16 * 1024;
constexpr int64_t kPatternBytes = 4096;  // of a computed padding value, repeated

}  // namespace

static void fill_around(EmitContext& ctx, const Op& op, const spec::Addr& out,
                        const std::vector<PadRange>& ranges, uint64_t pattern, uint32_t id) {
  const Dims& dims = op.type().dims;
  const int64_t bytes = elem_bytes(op.type().elem);
  const bool spread = std::any_of(ranges.begin(), ranges.end(),
                                  [](const PadRange& r) { return r.n > 1 && r.step > 1; });
  const bool nothing =
      std::any_of(ranges.begin(), ranges.end(), [](const PadRange& r) { return r.n == 0; });
  if (spread || nothing || op.type().bytes() <= kSmallPadBytes) {
    ctx.sink.fill(out, bytes, op.type().count(), pattern, id);
    return;
  }
  const Dims pitch = row_major_strides(dims);
  std::vector<CopyDim> box;
  for (size_t d = 0; d < dims.size(); ++d) {
    box.push_back({dims[d], 0, pitch[d] * bytes});
  }
  fill_outside(ctx.sink, out, bytes, std::move(box), ranges, pattern, id);
}

// Below and above the range in each dimension: what lies further out is filled already.
void fill_outside(CommandSink& sink, spec::Addr corner, int64_t bytes, std::vector<CopyDim> box,
                  const std::vector<PadRange>& ranges, uint64_t pattern, uint32_t id) {
  for (size_t d = 0; d < box.size(); ++d) {
    const PadRange& r = ranges[d];
    const int64_t end = r.at + r.n, n = box[d].n;
    if (r.at > 0) {
      box[d].n = r.at;
      sink.fill_box(corner, bytes, box, pattern, id);
    }
    if (end < n) {
      spec::Addr above = corner;
      above.offset += end * box[d].dst;
      box[d].n = n - end;
      sink.fill_box(above, bytes, box, pattern, id);
    }
    box[d].n = r.n;
    corner.offset += r.at * box[d].dst;
  }
}

// Repeats a value that a kernel has computed: doubles it up to a pattern, then copies that.
static bool fill_from_memory(EmitContext& ctx, const Buffer& value, const Buffer& out,
                             uint32_t id) {
  const int64_t bytes = elem_bytes(out.value->type.elem);
  const int64_t count = out.value->type.count();
  const int64_t length = std::min(kPatternBytes / bytes, count);
  const auto area = plan_beside_inflight(ctx, [&] { return take(ctx, length * bytes); });
  if (!area) {
    return false;
  }
  const int64_t pattern = *area;
  ctx.sink.copy_bytes(place_of(value), vmem_addr(pattern), bytes, bytes, id);
  for (int64_t done = 1; done < length;) {
    const int64_t n = std::min(done, length - done);
    ctx.sink.copy(vmem_addr(pattern), vmem_addr(pattern + done * bytes), bytes, {{n, bytes, bytes}},
                  id);
    done += n;
  }
  const auto dst = [&](int64_t element) { return place_of(out, element * bytes); };
  const int64_t times = count / length, rest = count % length;
  ctx.sink.copy(vmem_addr(pattern), dst(0), bytes,
                {{times, 0, length * bytes}, {length, bytes, bytes}}, id);
  if (rest > 0) {
    ctx.sink.copy(vmem_addr(pattern), dst(times * length), bytes, {{rest, bytes, bytes}}, id);
  }
  ctx.memory.give(pattern);
  return true;
}

bool emit_pad(EmitContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  const Op& op = *k.ops[0];
  Buffer& out = ctx.memory.at(k.out);
  if (out.bytes == 0) {
    return true;
  }
  if (ctx.pads.contains(k.out)) {
    out.in_hbm = true;  // as far as its readers see
    return true;
  }
  const int64_t bytes = elem_bytes(op.type().elem);
  ctx.memory.pin({&out});
  place_result(ctx, out);
  const auto address = [&] { return place_of(out); };
  const std::vector<PadRange> ranges = pad_ranges(op);
  const Value* value = op.operands[1];
  if (value->def != nullptr && value->def->kind == Kind::kConstant) {
    fill_around(ctx, op, address(), ranges, pattern_of(value->def->as<ConstantAttrs>().value), id);
  } else if (!fill_from_memory(ctx, ctx.memory.at(k.reads.back()), out, id)) {
    return false;
  }
  if (std::all_of(ranges.begin(), ranges.end(), [](const PadRange& r) { return r.n > 0; })) {
    const Buffer& in = ctx.memory.at(k.reads[0]);
    const Dims pitch = row_major_strides(op.type().dims);
    spec::Addr src = place_of(in), dst = address();
    src.offset += k.move().source.offset * bytes;
    std::vector<CopyDim> dims;
    for (size_t d = 0; d < ranges.size(); ++d) {
      const PadRange& r = ranges[d];
      src.offset += r.first * k.move().source.stride[d] * bytes;
      dst.offset += r.at * pitch[d] * bytes;
      dims.push_back({r.n, k.move().source.stride[d] * bytes, r.step * pitch[d] * bytes});
    }
    ctx.sink.copy(src, dst, bytes, dims, id);
  }
  finish_result(ctx, out, id);
  ctx.memory.unpin();
  return true;
}

}  // namespace tpu::compiler
