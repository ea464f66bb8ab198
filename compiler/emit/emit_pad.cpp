// Padding: the operand's box by one strided copy, what is around it by fills. Interior padding is a
// stride of the destination; negative padding crops the box.
#include <algorithm>
#include <cstring>

#include "emit/emitter.hpp"

namespace tpu::compiler {

namespace {

// Up to this size one fill of everything is cheaper than a fill for each side.
constexpr int64_t kSmallBytes = 16 * 1024;
constexpr int64_t kPatternBytes = 4096;  // of a computed padding value, repeated

}  // namespace

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

void Emitter::fill_around(const Op& op, const spec::Addr& out, const std::vector<PadRange>& ranges,
                          uint64_t pattern, uint32_t id) {
  const Dims& dims = op.type().dims;
  const int64_t bytes = elem_bytes(op.type().elem);
  const bool spread = std::any_of(ranges.begin(), ranges.end(),
                                  [](const PadRange& r) { return r.n > 1 && r.step > 1; });
  const bool nothing =
      std::any_of(ranges.begin(), ranges.end(), [](const PadRange& r) { return r.n == 0; });
  if (spread || nothing || op.type().bytes() <= kSmallBytes) {
    fill(out, bytes, op.type().count(), pattern, id);
    return;
  }
  const Dims pitch = row_major_strides(dims);
  std::vector<CopyDim> box;
  for (size_t d = 0; d < dims.size(); ++d) {
    box.push_back({dims[d], 0, pitch[d] * bytes});
  }
  fill_outside(out, bytes, std::move(box), ranges, pattern, id);
}

// Below and above the range in each dimension: what lies further out is filled already.
void Emitter::fill_outside(spec::Addr corner, int64_t bytes, std::vector<CopyDim> box,
                           const std::vector<PadRange>& ranges, uint64_t pattern, uint32_t id) {
  for (size_t d = 0; d < box.size(); ++d) {
    const PadRange& r = ranges[d];
    const int64_t end = r.at + r.n, n = box[d].n;
    if (r.at > 0) {
      box[d].n = r.at;
      fill_box(corner, bytes, box, pattern, id);
    }
    if (end < n) {
      spec::Addr above = corner;
      above.offset += end * box[d].dst;
      box[d].n = n - end;
      fill_box(above, bytes, box, pattern, id);
    }
    box[d].n = r.n;
    corner.offset += r.at * box[d].dst;
  }
}

// Repeats a value that a kernel has computed: doubles it up to a pattern, then copies that.
void Emitter::fill_from_memory(const Buffer& value, const Buffer& out, uint32_t id) {
  const int64_t bytes = elem_bytes(out.value->type.elem);
  const int64_t count = out.value->type.count();
  const int64_t length = std::min(kPatternBytes / bytes, count);
  const int64_t pattern = take(length * bytes);
  copy_bytes(where(value), vmem_addr(pattern), bytes, bytes, id);
  for (int64_t done = 1; done < length;) {
    const int64_t n = std::min(done, length - done);
    copy(vmem_addr(pattern), vmem_addr(pattern + done * bytes), bytes, {{n, bytes, bytes}}, id);
    done += n;
  }
  const auto dst = [&](int64_t element) { return where(out, element * bytes); };
  const int64_t times = count / length, rest = count % length;
  copy(vmem_addr(pattern), dst(0), bytes, {{times, 0, length * bytes}, {length, bytes, bytes}}, id);
  if (rest > 0) {
    copy(vmem_addr(pattern), dst(times * length), bytes, {{rest, bytes, bytes}}, id);
  }
  give(pattern);
}

void Emitter::emit_pad(const Kernel& k) {
  const uint32_t id = op_id(k);
  const Op& op = *k.ops[0];
  Buffer& out = buffer(k.out);
  if (out.bytes == 0) {
    return;
  }
  if (halos_.contains(k.out)) {
    out.in_hbm = true;  // as far as its readers see
    return;
  }
  const int64_t bytes = elem_bytes(op.type().elem);
  pinned_ = {&out};
  place_result(out);
  const auto address = [&] { return where(out); };
  const std::vector<PadRange> ranges = pad_ranges(op);
  const Value* value = op.operands[1];
  if (value->def != nullptr && value->def->kind == Kind::kConstant) {
    fill_around(op, address(), ranges, pattern_of(value->def->as<ConstantAttrs>().value), id);
  } else {
    fill_from_memory(buffer(k.reads.back()), out, id);
  }
  if (std::all_of(ranges.begin(), ranges.end(), [](const PadRange& r) { return r.n > 0; })) {
    const Buffer& in = buffer(k.reads[0]);
    const Dims pitch = row_major_strides(op.type().dims);
    spec::Addr src = where(in), dst = address();
    src.offset += k.source.offset * bytes;
    std::vector<CopyDim> dims;
    for (size_t d = 0; d < ranges.size(); ++d) {
      const PadRange& r = ranges[d];
      src.offset += r.first * k.source.stride[d] * bytes;
      dst.offset += r.at * pitch[d] * bytes;
      dims.push_back({r.n, k.source.stride[d] * bytes, r.step * pitch[d] * bytes});
    }
    copy(src, dst, bytes, dims, id);
  }
  finish_result(out, id);
  pinned_.clear();
}

}  // namespace tpu::compiler
