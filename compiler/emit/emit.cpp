// Runs through the kernels in order.
#include "emit/emit.hpp"

#include <utility>

#include "emit/context.hpp"
#include "emit/exchange/inflight.hpp"
#include "plan/in_place.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t whole_limit(const spec::BoardParams& board) {
  return board.core.vmem_kib * 1024 / 4;
}

// The arrays that the kernel touches: " f32[4] i32[2]".
std::string arrays_of(const Kernel& k) {
  std::string text;
  for (const auto* values : {&k.reads, &k.writes}) {
    for (const Value* v : *values) {
      text += ' ' + to_string(v->type);
    }
  }
  return text;
}

constexpr const char* kAdvice = "; make its arrays smaller, or work on them in parts (jax.lax.map)";

Error error_at(const Kernel& k, const std::string& text) {
  const Op* op = k.ops.empty() ? nullptr : k.ops.back();
  return Error(text, op == nullptr ? "" : source_name(op->kind), op == nullptr ? nullptr : op->loc);
}

Error too_long(const Kernel& k) {
  return error_at(k, "the program grows beyond " + std::to_string(kMaxItems) +
                         " instructions at this op, which touches" + arrays_of(k) + kAdvice);
}

Error too_large(const Kernel& k, const spec::BoardParams& board) {
  return error_at(k, "the smallest tile of this op does not fit into VMEM (" +
                         std::to_string(board.core.vmem_kib) + " KiB); it touches" + arrays_of(k) +
                         kAdvice);
}

bool emit_by_class(EmitContext& ctx, const Kernel& k) {
  switch (k.kind) {
    case KernelClass::kLoop:
      return emit_loop(ctx, k);
    case KernelClass::kContract:
      return emit_contraction(ctx, k);
    case KernelClass::kPad:
      return emit_pad(ctx, k);
    case KernelClass::kAllReduce:
      return emit_all_reduce(ctx, k);
    case KernelClass::kExchange:
      return emit_exchange(ctx, k);
    case KernelClass::kIndexed:
      return emit_indexed(ctx, k);
    case KernelClass::kWhile:
      return emit_while(ctx, k);
    case KernelClass::kBranch:
      return emit_branch(ctx, k);
    case KernelClass::kConcatenate:
      emit_concatenate(ctx, k);
      return true;
    case KernelClass::kCopyOut:
      emit_copy_out(ctx, k);
      return true;
    case KernelClass::kDynamicSlice:
      emit_dynamic_slice(ctx, k);
      return true;
    case KernelClass::kDynamicUpdate:
      emit_dynamic_update(ctx, k);
      return true;
    case KernelClass::kYield:
      return true;  // the owner of the region does it
  }
  return true;
}

// False: ctx.too_large names the kernel that does not fit.
bool emit_all(EmitContext& ctx) {
  ctx.sink.insn(spec::ScalarOp::kRid, kPartitionRegister, 0, 0, 0);
  for (const Kernel& k : ctx.kernels.kernels) {
    try {
      if (!emit_kernel(ctx, k)) {
        return false;
      }
    } catch (const ListingFull&) {
      throw too_long(k);
    }
  }
  finish_inflight(ctx);
  ctx.sink.insn(spec::ScalarOp::kHalt, 0, 0, 0, 0);
  return true;
}

EmittedProgram finished(EmitContext& ctx) {
  Listing& listing = ctx.sink.listing;
  Scratch& scratch = ctx.memory.scratch();
  scratch.place();
  scratch.relocate(listing, ctx.slots.scratch);
  listing.slots[static_cast<size_t>(ctx.slots.scratch)].bytes =
      static_cast<uint64_t>(scratch.bytes());
  EmittedProgram out;
  out.listing = std::move(listing);
  out.scratch = std::move(scratch);
  out.ops = ctx.ops.list();
  out.constants = ctx.slots.constants;
  out.matmul_flops = ctx.ops.matmul_flops();
  out.vmem_peak = ctx.memory.vmem_peak();
  out.first_remote_semaphore = ctx.channels.first_semaphore();
  return out;
}

}  // namespace

EmitContext::EmitContext(const Module& m, KernelProgram& k, const spec::BoardParams& b,
                         int64_t lock_limit)
    : module(m),
      kernels(k),
      board(b),
      slots(make_slots(m, k, b)),
      pads(find_virtual_pads(m, k, whole_limit(b))),
      memory(k, slots, pads, b, lock_limit),
      result_home(place_results(m, k, slots, memory)),
      channels(sink, static_cast<int>(b.core.semaphores), m.num_cores) {
  sink.listing.slots = slots.list;
}

EmitContext::~EmitContext() = default;

std::optional<int64_t> take(EmitContext& ctx, int64_t bytes) {
  const auto address = ctx.memory.take(bytes);
  ctx.run_moves();
  return address;
}

void place_result(EmitContext& ctx, Buffer& out) {
  place_result(ctx.memory, out);
  ctx.run_moves();
}

void finish_result(EmitContext& ctx, Buffer& out, uint32_t id) {
  finish_result(ctx.memory, out, id);
  ctx.run_moves();
}

void store(EmitContext& ctx, Buffer& b, uint32_t id) {
  ctx.memory.store(b, id);
  ctx.run_moves();
}

MemRange whole_range(EmitContext& ctx, const Buffer& b, bool write) {
  MemRange r;
  r.write = write;
  if (b.vmem >= 0) {
    r.lo = b.vmem;
  } else {
    r.space = spec::Space::kHbm;
    r.slot = ctx.slots.root(b.slot);
    r.lo = b.offset;
  }
  r.hi = r.lo + b.bytes;
  return r;
}

bool emit_kernel(EmitContext& ctx, const Kernel& k) {
  if (k.kind == KernelClass::kYield) {
    return true;
  }
  ctx.memory.enter(k.order);
  ctx.memory.set_op(ctx.ops.id(k));
  if (needs_inflight(ctx, k)) {
    finish_inflight(ctx);
  }
  if (!emit_by_class(ctx, k)) {
    ctx.too_large = ctx.too_large == nullptr ? &k : ctx.too_large;
    if (!cut_kernel(ctx, k)) {
      return false;
    }
    ctx.ops.forget(k);
    return emit_kernel(ctx, k);
  }
  ctx.memory.drop_dead();
  pace(ctx);
  return true;
}

// Not inside regions: the places of carried values depend on all kernels of the region.
bool cut_kernel(EmitContext& ctx, const Kernel& k) {
  if (ctx.regions > 0 || !split_kernel(ctx.kernels, k.order)) {
    return false;
  }
  ctx.memory.find_reads(ctx.kernels, ctx.pads);
  revise_results(ctx.module, ctx.kernels, ctx.slots, k.order, ctx.memory, ctx.result_home);
  ctx.too_large = nullptr;
  return true;
}

EmittedProgram emit_program(const Module& module, KernelProgram& kernels,
                            const spec::BoardParams& board) {
  int64_t lock_limit = board.core.vmem_kib * 1024 / 4;
  for (;;) {
    EmitContext ctx(module, kernels, board, lock_limit);
    if (emit_all(ctx)) {
      return finished(ctx);
    }
    const Kernel k = *ctx.too_large;
    if (ctx.memory.locks_values()) {
      lock_limit = lock_limit < 4096 ? 0 : lock_limit / 4;
    } else if (!split_kernel(kernels, k.order)) {
      throw too_large(k, board);
    }
  }
}

}  // namespace tpu::compiler
