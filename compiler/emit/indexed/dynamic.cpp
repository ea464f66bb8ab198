// dynamic_slice and dynamic_update_slice: one DMA whose address the sequencer computes. Starts are
// clamped to [0, size of the operand - size of the slice]. An update happens in place if nobody
// reads the operand afterwards, else in a copy.
#include <algorithm>

#include "emit/context.hpp"
#include "plan/regions.hpp"

namespace tpu::compiler {

using spec::ScalarOp;

namespace {

std::vector<CopyDim> box(const Dims& sizes, const Dims& src, const Dims& dst, int64_t unit) {
  std::vector<CopyDim> dims;
  for (size_t d = 0; d < sizes.size(); ++d) {
    dims.push_back({sizes[d], src[d] * unit, dst[d] * unit});
  }
  return dims;
}

// A start that is known: clamped; -1: not known.
int64_t known_start(const Value* v, int64_t limit) {
  if (limit == 0) {
    return 0;
  }
  if (v->def == nullptr || v->def->kind != Kind::kConstant) {
    return -1;
  }
  const int64_t start = v->def->as<ConstantAttrs>().value.as_int(0);
  return v->type.elem == Elem::kU64 && start < 0 ? limit : std::clamp<int64_t>(start, 0, limit);
}

}  // namespace

// Bytes from the operand's origin to the slice: the part that is known as result, the rest in
// kAddressRegister. `first`: operand of the op that is the first start.
static int64_t start_address(EmitContext& ctx, const Kernel& k, const Dims& strides, size_t first,
                             const Dims& sizes, uint32_t id) {
  const Op& op = *k.ops[0];
  const Dims& dims = op.operand_type(0).dims;
  const int64_t unit = elem_bytes(op.type().elem);
  std::vector<NestAccess> fetched = k.move().starts;
  int64_t known = 0;
  std::vector<int64_t> start(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) {
    start[d] = known_start(op.operands[first + d], dims[d] - sizes[d]);
    if (start[d] >= 0) {
      known += start[d] * strides[d] * unit;
      fetched[d].value = nullptr;
    }
  }
  fetch_scalars(ctx, fetched, id);
  ctx.sink.insn(ScalarOp::kLi, kAddressRegister, 0, 0, 0);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (start[d] >= 0) {
      continue;
    }
    const Value* v = op.operands[first + d];
    if (fetched[d].value == nullptr) {
      scalar(ctx, v, kScalarRegister);
    } else {
      read_scalar(ctx.sink, d, v->type.elem, kScalarRegister);
    }
    ctx.sink.insn(ScalarOp::kMax, kScalarRegister, kScalarRegister, 0, 0);
    ctx.sink.load_immediate(kLimitRegister, dims[d] - sizes[d]);
    ctx.sink.insn(ScalarOp::kMin, kScalarRegister, kScalarRegister, kLimitRegister, 0);
    ctx.sink.load_immediate(kLimitRegister, strides[d] * unit);
    ctx.sink.insn(ScalarOp::kMul, kScalarRegister, kScalarRegister, kLimitRegister, 0);
    ctx.sink.insn(ScalarOp::kAdd, kAddressRegister, kAddressRegister, kScalarRegister, 0);
  }
  return known;
}

namespace {

MemRange whole(const spec::Addr& base, int slot, int64_t bytes, bool write) {
  MemRange r;
  r.space = static_cast<spec::Space>(base.space);
  r.slot = slot;
  r.lo = base.offset;
  r.hi = base.offset + bytes;
  r.write = write;
  return r;
}

}  // namespace

void emit_dynamic_slice(EmitContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  const Op& op = *k.ops[0];
  Buffer &in = ctx.memory.at(k.move().view.value), &out = ctx.memory.at(k.out);
  ctx.memory.pin({&in, &out});
  place_result(ctx, out);
  const int64_t unit = elem_bytes(op.type().elem);
  const Dims& sizes = op.type().dims;
  const int64_t known = start_address(ctx, k, k.move().view.view.stride, 1, sizes, id);
  spec::Addr src = place_of(in);
  const MemRange window = whole(src, in.vmem >= 0 ? 0 : ctx.slots.root(in.slot), in.bytes, false);
  src.offset += k.move().view.view.offset * unit + known;
  src.reg = kAddressRegister;
  ctx.sink.copy_window(src, place_of(out), unit,
                       box(sizes, k.move().view.view.stride, row_major_strides(sizes), unit),
                       window, id);
  finish_result(ctx, out, id);
  ctx.memory.unpin();
}

// The result takes the operand's place. False: there must be a copy.
static bool update_in_place(EmitContext& ctx, const Kernel& k) {
  Buffer &in = ctx.memory.at(k.reads[0]), &out = ctx.memory.at(k.out);
  const bool read_too = std::count(k.reads.begin(), k.reads.end(), k.reads[0]) > 1;
  if (ctx.memory.next_read(in) != INT32_MAX || read_too || in.must_store ||
      (in.locked && in.value->def == nullptr && !is_carried_here(ctx.memory, in))) {
    return false;
  }
  if (in.vmem >= 0) {
    take_vmem(ctx.memory, in, out);
    return true;
  }
  if (out.slot >= 0) {
    return in.slot >= 0 && ctx.slots.root(in.slot) == ctx.slots.root(out.slot) &&
           in.offset == out.offset;
  }
  if (!in.scratch) {
    return false;
  }
  ctx.memory.take_home(in, out);
  return true;
}

void emit_dynamic_update(EmitContext& ctx, const Kernel& k) {
  const uint32_t id = ctx.ops.id(k);
  const Op& op = *k.ops[0];
  Buffer &in = ctx.memory.at(k.reads[0]), &update = ctx.memory.at(k.move().view.value),
         &out = ctx.memory.at(k.out);
  ctx.memory.pin({&in, &update, &out});
  const int64_t unit = elem_bytes(op.type().elem);
  if (!update_in_place(ctx, k)) {
    place_result(ctx, out);
    ctx.sink.copy_bytes(place_of(in), place_of(out), out.bytes, unit, id);
  }
  const Dims& sizes = op.operand_type(1).dims;
  const Dims pitch = row_major_strides(op.type().dims);
  if (op.operand_type(1).count() > 0) {
    const int64_t known = start_address(ctx, k, pitch, 2, sizes, id);
    spec::Addr dst = place_of(out);
    const MemRange window =
        whole(dst, out.vmem >= 0 ? 0 : ctx.slots.root(out.slot), out.bytes, true);
    dst.offset += known;
    dst.reg = kAddressRegister;
    spec::Addr src = place_of(update);
    src.offset += k.move().view.view.offset * unit;
    ctx.sink.copy_window(src, dst, unit, box(sizes, k.move().view.view.stride, pitch, unit), window,
                         id);
  }
  finish_result(ctx, out, id);
  ctx.memory.unpin();
}

}  // namespace tpu::compiler
