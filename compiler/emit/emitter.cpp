// Runs through the kernels in order; op table.
#include <algorithm>

#include "emit/exchange_run.hpp"

namespace tpu::compiler {

Emitter::Emitter(const Module& module, const KernelProgram& kernels, const spec::BoardParams& board,
                 int64_t lock_limit)
    : module_(module),
      kernels_(kernels),
      board_(board),
      vmem_(board.core.vmem_kib * 1024),
      remote_semaphores_(static_cast<int>(board.core.semaphores)),
      lock_limit_(lock_limit) {}

Emitter::~Emitter() = default;

void Emitter::run() {
  make_slots();
  plan_results();
  listing.append(spec::ScalarOp::kRid, kPartitionRegister, 0, 0, 0);
  for (const Kernel& k : kernels_.kernels) {
    try {
      emit_kernel(k);
    } catch (const ListingFull&) {
      too_long(k);
    }
  }
  finish_run();
  listing.append(spec::ScalarOp::kHalt, 0, 0, 0, 0);
  scratch_.place();
  scratch_.relocate(listing, scratch_slot_);
  listing.slots[static_cast<size_t>(scratch_slot_)].bytes = static_cast<uint64_t>(scratch_.bytes());
}

void Emitter::emit_kernel(const Kernel& k) {
  if (k.kind == KernelClass::kYield) {
    return;  // the owner of the region does it
  }
  now_ = k.order;
  running_op_ = op_id(k);
  if (needs_run(k)) {
    finish_run();
  }
  switch (k.kind) {
    case KernelClass::kLoop:
      emit_loop(k);
      break;
    case KernelClass::kContract:
      emit_dot(k);
      break;
    case KernelClass::kConcatenate:
      emit_concatenate(k);
      break;
    case KernelClass::kPad:
      emit_pad(k);
      break;
    case KernelClass::kAllReduce:
      emit_all_reduce(k);
      break;
    case KernelClass::kExchange:
      emit_exchange(k);
      break;
    case KernelClass::kIndexed:
      emit_indexed(k);
      break;
    case KernelClass::kCopyOut:
      emit_copy_out(k);
      break;
    case KernelClass::kDynamicSlice:
      emit_dynamic_slice(k);
      break;
    case KernelClass::kDynamicUpdate:
      emit_dynamic_update(k);
      break;
    case KernelClass::kWhile:
      emit_while(k);
      break;
    case KernelClass::kBranch:
      emit_branch(k);
      break;
    case KernelClass::kYield:
      break;
  }
  drop_dead();
  pace();
}

// One entry per kernel: the names of its ops, the source line of the last one that has any.
uint32_t Emitter::op_id(const Kernel& k) {
  const auto [it, fresh] = op_ids_.try_emplace(k.order, static_cast<uint32_t>(ops.size()));
  if (!fresh) {
    return it->second;
  }
  exe::OpInfoT info;
  constexpr size_t kNames = 6;
  for (size_t i = 0; i < k.ops.size() && i < kNames; ++i) {
    info.name += (i == 0 ? "" : "+") + std::string(kind_name(k.ops[i]->kind));
  }
  if (k.ops.size() > kNames) {
    info.name += "+" + std::to_string(k.ops.size() - kNames) + " more";
  }
  if (k.kind == KernelClass::kCopyOut) {
    info.name = "result " + std::to_string(k.result);
  }
  for (const Op* op : k.ops) {
    if (!op->loc->frames.empty()) {
      info.file = op->loc->frames[0].file;
      info.line = op->loc->frames[0].line;
      info.column = op->loc->frames[0].column;
    }
  }
  if (k.kind == KernelClass::kContract) {
    info.flops =
        static_cast<uint64_t>(2 * Contraction::count(k.dot.batch) * Contraction::count(k.dot.m) *
                              Contraction::count(k.dot.n) * Contraction::count(k.dot.k) * times_);
  }
  ops.push_back(info);
  return it->second;
}

// The arrays that the kernel touches: " f32[4] i32[2]".
std::string Emitter::arrays_of(const Kernel& k) {
  std::string text;
  for (const auto* values : {&k.reads, &k.writes}) {
    for (const Value* v : *values) {
      text += ' ' + to_string(v->type);
    }
  }
  return text;
}

void Emitter::too_long(const Kernel& k) const {
  const Op* op = k.ops.empty() ? nullptr : k.ops.back();
  throw Error("the program grows beyond " + std::to_string(kMaxItems) +
                  " instructions at this op, which touches" + arrays_of(k) +
                  "; make its arrays smaller, or work on them in parts (jax.lax.map)",
              op == nullptr ? "" : source_name(op->kind), op == nullptr ? nullptr : op->loc);
}

void Emitter::too_large(const Kernel& k) const {
  const Op* op = k.ops.empty() ? nullptr : k.ops.back();
  std::string text = "the smallest tile of this op does not fit into VMEM (" +
                     std::to_string(board_.core.vmem_kib) + " KiB); it touches" + arrays_of(k);
  text += "; make its arrays smaller, or work on them in parts (jax.lax.map)";
  throw KernelTooLarge(
      Error(text, op == nullptr ? "" : source_name(op->kind), op == nullptr ? nullptr : op->loc),
      k.order);
}

}  // namespace tpu::compiler
