#include "plan/indexed/dynamic_plan.hpp"

#include <algorithm>

#include "plan/regions.hpp"

namespace tpu::compiler {

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

// Bytes from the operand's origin to the box: the part that is known as result, the rest as starts
// of the plan. `first`: operand of the op that is the first start.
int64_t find_starts(Residency& memory, const Kernel& k, const Dims& strides, size_t first,
                    const Dims& sizes, DynamicPlan& plan) {
  const Op& op = *k.ops[0];
  const Dims& dims = op.operand_type(0).dims;
  std::vector<NestAccess> fetched = k.move().starts;
  int64_t known = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t limit = dims[d] - sizes[d], stride = strides[d] * plan.unit;
    const int64_t start = known_start(op.operands[first + d], limit);
    if (start >= 0) {
      known += start * stride;
      fetched[d].value = nullptr;
      continue;
    }
    const int scalar = fetched[d].value == nullptr ? -1 : static_cast<int>(d);
    plan.starts.push_back({op.operands[first + d], limit, stride, scalar});
  }
  plan.scalars = scalar_places(memory, fetched);
  return known;
}

MemRange whole(const Buffer& b, bool write) {
  const spec::Addr base = place_of(b);
  MemRange r;
  r.space = static_cast<spec::Space>(base.space);
  r.slot = b.vmem >= 0 ? 0 : b.slot;
  r.lo = base.offset;
  r.hi = base.offset + b.bytes;
  r.write = write;
  return r;
}

bool is_update(const Value* v) {
  return v->def != nullptr && v->def->kind == Kind::kDynamicUpdateSlice;
}

bool same_home(const Buffer& a, const Buffer& b) {
  return a.slot >= 0 && a.slot == b.slot && a.offset == b.offset;
}

// The operand lies in the home of a value that the loop around the kernel carries, and the next
// value of the loop is the result, or is made from it by updates: they may all be made there.
bool goes_home(Residency& memory, const Kernel& k, const Buffer& in) {
  const Region* body = k.ops[0]->parent;
  const Op* loop = body->parent;
  if (loop == nullptr || loop->kind != Kind::kWhile || body != loop->regions[1].get()) {
    return false;
  }
  for (size_t i = 0; i < body->args.size(); ++i) {
    const Buffer* home = memory.find(loop->result(i));
    if (home == nullptr || home->vmem >= 0 || !same_home(*home, in)) {
      continue;
    }
    const Value* next = body->terminator()->operands[i];
    while (next != k.out && is_update(next) && next->def->parent == body) {
      next = next->def->operands[0];
    }
    return next == k.out;
  }
  return false;
}

// The result may be meant for a home where an earlier version lies that somebody still reads: then
// it is made elsewhere.
void spare_earlier_versions(Residency& memory, const Kernel& k) {
  Buffer& out = memory.at(k.out);
  for (const Value* v = k.reads[0]; out.slot >= 0; v = v->def->operands[0]) {
    const Buffer* b = memory.find(v);
    if (b != nullptr && v->def != nullptr && b->vmem < 0 && same_home(*b, out) &&
        memory.next_read(*b) != INT32_MAX) {
      memory.touch(out);
      out.slot = -1;
      out.offset = 0;
      out.must_store = false;
    }
    if (!is_update(v)) {
      return;
    }
  }
}

// The result takes the operand's place. False: there must be a copy.
bool update_in_place(Residency& memory, const Kernel& k) {
  Buffer &in = memory.at(k.reads[0]), &out = memory.at(k.out);
  const bool read_too = std::count(k.reads.begin(), k.reads.end(), k.reads[0]) > 1;
  if (memory.next_read(in) != INT32_MAX || read_too || in.must_store ||
      (in.locked && in.value->def == nullptr && !is_carried_here(memory, in))) {
    return false;
  }
  if (in.vmem >= 0) {
    take_vmem(memory, in, out);
    return true;
  }
  if (out.slot >= 0) {
    return same_home(in, out);
  }
  if (in.scratch) {
    take_home(memory, in, out);
    return true;
  }
  if (!goes_home(memory, k, in)) {
    return false;
  }
  memory.touch(out);
  out.slot = in.slot;
  out.offset = in.offset;
  return true;
}

}  // namespace

DynamicPlan plan_dynamic_slice(const Kernel& k, Residency& memory) {
  const Op& op = *k.ops[0];
  const View& view = k.move().view.view;
  const Buffer& in = memory.at(k.move().view.value);
  Buffer& out = memory.at(k.out);
  DynamicPlan plan;
  memory.pins().pin({&in, &out});
  place_result(memory, out);
  plan.unit = elem_bytes(op.type().elem);
  const Dims& sizes = op.type().dims;
  const int64_t known = find_starts(memory, k, view.stride, 1, sizes, plan);
  plan.src = place_of(in, view.offset * plan.unit + known);
  plan.dst = place_of(out);
  plan.window = whole(in, false);
  plan.dims = box(sizes, view.stride, row_major_strides(sizes), plan.unit);
  return plan;
}

DynamicPlan plan_dynamic_update(const Kernel& k, Residency& memory, uint32_t op_id) {
  const Op& op = *k.ops[0];
  const View& view = k.move().view.view;
  const Buffer &in = memory.at(k.reads[0]), &update = memory.at(k.move().view.value);
  Buffer& out = memory.at(k.out);
  DynamicPlan plan;
  plan.update = true;
  memory.pins().pin({&in, &update, &out});
  plan.unit = elem_bytes(op.type().elem);
  spare_earlier_versions(memory, k);
  const bool made_there = update.part == k.out;
  if (!update_in_place(memory, k)) {
    if (made_there) {
      throw Error("internal: an update in place is made in a copy");
    }
    place_result(memory, out);
    memory.move({place_of(in), place_of(out), out.bytes, plan.unit, op_id});
    plan.copied = out.bytes;
  }
  const Dims& sizes = op.operand_type(1).dims;
  const Dims pitch = row_major_strides(op.type().dims);
  plan.nothing = made_there || op.operand_type(1).count() == 0;
  if (!plan.nothing) {
    const int64_t known = find_starts(memory, k, pitch, 2, sizes, plan);
    plan.src = place_of(update, view.offset * plan.unit);
    plan.dst = place_of(out, known);
    plan.window = whole(out, true);
    plan.dims = box(sizes, view.stride, pitch, plan.unit);
  }
  return plan;
}

}  // namespace tpu::compiler
