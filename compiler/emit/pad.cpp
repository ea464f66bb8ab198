// Padding: the operand's box by one strided copy, what is around it by fills. Interior padding is a
// stride of the destination; negative padding crops the box.
#include <algorithm>

#include "emit/context.hpp"

namespace tpu::compiler {

namespace {

// Up to this size one fill of everything is cheaper than a fill for each side.
constexpr int64_t kSmallPadBytes = 16 * 1024;

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
static void fill_from_memory(EmitContext& ctx, const Placement& value, const Placement& out,
                             const Type& type, int64_t pattern, uint32_t id) {
  const int64_t bytes = elem_bytes(type.elem), count = type.count();
  const int64_t length = pad_pattern_elements(type);
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
}

void emit_pad(EmitContext& ctx, const Step& step, const PadPlan& plan) {
  const Kernel& k = *step.kernel;
  const Op& op = *k.ops[0];
  const Placement& out = step.places.at(k.out);
  const int64_t bytes = elem_bytes(op.type().elem);
  const std::vector<PadRange> ranges = pad_ranges(op);
  if (plan.pattern < 0) {
    const auto& value = op.operands[1]->def->as<ConstantAttrs>().value;
    fill_around(ctx, op, place_of(out), ranges, pattern_of(value), step.op_id);
  } else {
    fill_from_memory(ctx, step.places.at(k.reads.back()), out, k.out->type, plan.pattern,
                     step.op_id);
  }
  if (std::all_of(ranges.begin(), ranges.end(), [](const PadRange& r) { return r.n > 0; })) {
    const Dims pitch = row_major_strides(op.type().dims);
    spec::Addr src = place_of(step.places.at(k.reads[0])), dst = place_of(out);
    src.offset += k.move().source.offset * bytes;
    std::vector<CopyDim> dims;
    for (size_t d = 0; d < ranges.size(); ++d) {
      const PadRange& r = ranges[d];
      src.offset += r.first * k.move().source.stride[d] * bytes;
      dst.offset += r.at * pitch[d] * bytes;
      dims.push_back({r.n, k.move().source.stride[d] * bytes, r.step * pitch[d] * bytes});
    }
    ctx.sink.copy(src, dst, bytes, dims, step.op_id);
  }
}

}  // namespace tpu::compiler
