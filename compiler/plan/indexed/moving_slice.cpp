// Slices of stacked arrays in a counted loop, read and written where they are. The address of a
// slice is a place in the array plus a multiple of the counter, so that every command which brings
// a piece of the value from HBM, or to it, goes to the array itself.
#include <algorithm>
#include <numeric>
#include <set>

#include "ir/counter_values.hpp"
#include "plan/in_place.hpp"
#include "plan/plan.hpp"

namespace tpu::compiler {

namespace {

// Kernels whose commands take operands from wherever the placement says.
bool follows_places(KernelClass kind) {
  return kind == KernelClass::kLoop || kind == KernelClass::kContract ||
         kind == KernelClass::kPad || kind == KernelClass::kConcatenate;
}

// Elements of a slice of `sizes` from one to the next are neighbours in the array.
bool is_contiguous(const Dims& sizes, const Dims& strides) {
  const Dims dense = row_major_strides(sizes);
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1 && strides[d] != dense[d]) {
      return false;
    }
  }
  return true;
}

struct Start {
  int64_t first = 0, step = 0;  // elements, in the first iteration and from one to the next
};

// Of the slice whose starts are the operands from `operand` on; nothing: it does not move in equal
// steps, or not inside of the array.
std::optional<Start> start_of(const Op& op, size_t operand, const Dims& all, const Dims& sizes,
                              const Dims& strides, const Kernel& loop) {
  Start sum;
  for (size_t d = 0; d < all.size(); ++d) {
    const auto starts =
        values_in_loop(op.operands[operand + d], *loop.ops[0], *loop.control().counted);
    if (!starts) {
      return std::nullopt;
    }
    const int64_t step = starts->size() > 1 ? (*starts)[1] - (*starts)[0] : 0;
    for (size_t i = 0; i < starts->size(); ++i) {
      const int64_t start = (*starts)[i];
      if (start != (*starts)[0] + static_cast<int64_t>(i) * step || start < 0 ||
          start > all[d] - sizes[d]) {
        return std::nullopt;
      }
    }
    sum.first += (*starts)[0] * strides[d];
    sum.step += step * strides[d];
  }
  return sum;
}

// True if the value is made inside of the loop, its carried values included.
bool is_inside(const Value* v, const Op& loop) {
  const Region* region = v->def != nullptr ? v->def->parent : v->owner;
  while (region != nullptr && region->parent != nullptr) {
    if (region->parent == &loop) {
      return true;
    }
    region = region->parent->parent;
  }
  return false;
}

// True if all kernels of the body that read the value fulfil `fits`, and no kernel of its regions
// reads it.
template <typename Fits>
bool all_readers(const KernelProgram& body, const Value* v, const Fits& fits) {
  return std::ranges::all_of(body.kernels, [&](const Kernel& k) {
    return std::ranges::find(k.reads, v) == k.reads.end() || fits(k);
  });
}

// Sets the home of a value to a slice of the array at `home`. False: there is no number for it.
bool put(PlanContext& ctx, Buffer& b, const Placement& home, int64_t offset, const Start& start) {
  const int64_t unit = elem_bytes(b.value->type.elem);
  uint8_t moving = 0;
  if (start.step != 0) {
    const OpenLoop& loop = ctx.loops.back();
    moving = ctx.moving.add(
        {loop.counter_smem, start.step * unit, loop.kernel->control().counted->trips});
    if (moving == 0) {
      return false;
    }
  }
  ctx.memory.touch(b);
  b.slot = home.slot;
  b.offset = home.offset + (offset + start.first) * unit;
  b.moving = moving;
  return true;
}

// A loop whose counter is the number of the iteration.
bool counts_iterations(const CountedLoop& loop) {
  return loop.first == 0 && loop.step == 1 && loop.trips > 0;
}

const Kernel* maker_of(const KernelProgram& body, const Value* v) {
  const auto maker = std::ranges::find_if(body.kernels, [&](const Kernel& k) {
    return std::ranges::find(k.writes, v) != k.writes.end();
  });
  return maker == body.kernels.end() ? nullptr : &*maker;
}

// The update that makes the next value of carried array `i`, if it is all that reads the array.
const Kernel* only_update(const Kernel& loop, const KernelProgram& body, size_t i) {
  const Value* next = body.kernels.back().control().carried[i];
  const Value* carried = loop.ops[0]->regions[1]->args[i].get();
  const Kernel* update = next == nullptr ? nullptr : maker_of(body, next);
  if (update == nullptr || update->kind != KernelClass::kDynamicUpdate ||
      update->reads[0] != carried || update->move().view.value == carried ||
      !all_readers(body, carried, [&](const Kernel& k) { return &k == update; }) ||
      !all_readers(body, next, [&](const Kernel& k) { return &k == &body.kernels.back(); }) ||
      std::ranges::count(body.kernels.back().control().carried, next) != 1) {
    return nullptr;
  }
  return update;
}

// The slot of this iteration.
Placement home_in(PlanContext& ctx, std::vector<int> slots) {
  Placement home;
  home.slot = *std::ranges::min_element(slots);
  for (int& slot : slots) {
    slot -= home.slot;
  }
  home.table = ctx.moving.add_table(ctx.loops.back().counter_smem, slots);
  if (home.table == 0) {
    throw Error("internal: too many tables of slots");
  }
  return home;
}

// This iteration's argument.
Placement argument_home(PlanContext& ctx, const Kernel& k) {
  std::vector<int> slots;
  for (const Value* v : k.move().arguments) {
    const Buffer& b = ctx.memory.at(v);
    if (b.slot < 0 || b.offset != 0 || b.scratch || !b.in_hbm) {
      throw Error("internal: an argument of a stack is not in its slot");
    }
    slots.push_back(b.slot);
  }
  return home_in(ctx, std::move(slots));
}

// This iteration's result.
Placement result_home(PlanContext& ctx, const Kernel& k) {
  std::vector<int> slots;
  for (const size_t result : k.move().results) {
    slots.push_back(ctx.slots.results[result].slot);
  }
  return home_in(ctx, std::move(slots));
}

// True if the part may lie in the memory of the results while the loop still reads the arguments
// that have lain there: kernels behind the one that makes it do not.
bool may_replace_arguments(PlanContext& ctx, const Kernel& k, const KernelProgram& body) {
  std::set<const Value*> replaced;  // for look-up only
  for (const size_t result : k.move().results) {
    if (const Value* v = ctx.slots.results[result].replaces) {
      replaced.insert(v);
    }
  }
  return std::ranges::all_of(body.kernels, [&](const Kernel& slice) {
    return std::ranges::none_of(slice.move().arguments,
                                [&](const Value* v) { return replaced.contains(v); }) ||
           may_replace(body, k.reads[0], slice.out);
  });
}

bool read_argument(PlanContext& ctx, const Kernel& k, const KernelProgram& body) {
  Buffer& out = ctx.memory.at(k.out);
  if (out.bytes == 0 || out.slot >= 0 || out.target >= 0 ||
      !all_readers(body, k.out, [](const Kernel& reader) { return follows_places(reader.kind); })) {
    return false;
  }
  const Placement home = argument_home(ctx, k);
  ctx.memory.touch(out);
  out.slot = home.slot;
  out.table = home.table;
  out.offset = 0;
  out.in_hbm = true;
  return true;
}

}  // namespace

void copy_argument(PlanContext& ctx, const Kernel& k) {
  Buffer& out = ctx.memory.at(k.out);
  place_result(ctx.memory, out);
  if (out.bytes > 0) {
    ctx.memory.move({home_of(argument_home(ctx, k)), place_of(out), out.bytes,
                     elem_bytes(k.out->type.elem), ctx.ops.id(k)});
  }
}

bool read_in_place(PlanContext& ctx, const Kernel& k) {
  if (ctx.loops.empty()) {
    return false;
  }
  const Kernel& loop = *ctx.loops.back().kernel;
  const Op& op = *k.ops[0];
  if (!k.move().arguments.empty()) {
    return read_argument(ctx, k, *loop.control().regions[1]);
  }
  const NestAccess& from = k.move().view;
  if (op.parent != loop.ops[0]->regions[1].get() || !counts_iterations(*loop.control().counted) ||
      is_inside(from.value, *loop.ops[0])) {
    return false;
  }
  const Buffer& in = ctx.memory.at(from.value);
  Buffer& out = ctx.memory.at(k.out);
  const Dims& sizes = op.type().dims;
  if (in.vmem >= 0 || in.slot < 0 || !in.in_hbm || in.moving != 0 || out.bytes == 0 ||
      out.slot >= 0 || out.target >= 0 || ctx.pads.contains(from.value) ||
      !is_contiguous(sizes, from.view.stride) ||
      !all_readers(*loop.control().regions[1], k.out,
                   [](const Kernel& reader) { return follows_places(reader.kind); })) {
    return false;
  }
  const auto start = start_of(op, 1, op.operand_type(0).dims, sizes, from.view.stride, loop);
  if (!start || !put(ctx, out, in, from.view.offset, *start)) {
    return false;
  }
  out.in_hbm = true;
  return true;
}

void copy_loop_result(PlanContext& ctx, const Kernel& k) {
  const Buffer& part = ctx.memory.at(k.reads[0]);
  const Placement home = result_home(ctx, k);
  const bool there = part.slot == home.slot && part.table == home.table && part.in_hbm;
  if (part.bytes > 0 && !there) {
    ctx.memory.move({place_of(part), home_of(home), part.bytes, elem_bytes(part.value->type.elem),
                     ctx.ops.id(k)});
  }
}

// What only becomes a result is made there.
static void write_results(PlanContext& ctx, const KernelProgram& body) {
  std::set<const Value*> known;
  for (const Kernel& k : body.kernels) {
    if (k.kind != KernelClass::kCopyOut || !known.insert(k.reads[0]).second) {
      continue;
    }
    const Kernel* maker = maker_of(body, k.reads[0]);
    Buffer* part = maker == nullptr ? nullptr : ctx.memory.find(k.reads[0]);
    if (part == nullptr || part->bytes == 0 || part->slot >= 0 || part->target >= 0 ||
        (maker->kind != KernelClass::kLoop && maker->kind != KernelClass::kContract) ||
        !may_replace_arguments(ctx, k, body) ||
        !all_readers(body, k.reads[0], [](const Kernel& reader) {
          return follows_places(reader.kind) || reader.kind == KernelClass::kYield ||
                 reader.kind == KernelClass::kCopyOut;
        })) {
      continue;
    }
    const Placement home = result_home(ctx, k);
    ctx.memory.touch(*part);
    part->slot = home.slot;
    part->table = home.table;
    part->offset = 0;
    part->must_store = true;
  }
}

void write_in_place(PlanContext& ctx, const KernelProgram& body) {
  write_results(ctx, body);
  const Kernel& loop = *ctx.loops.back().kernel;
  if (!counts_iterations(*loop.control().counted)) {
    return;
  }
  for (size_t i = 0; i < loop.control().carried.size(); ++i) {
    const Kernel* update =
        loop.control().carried[i] == nullptr ? nullptr : only_update(loop, body, i);
    if (update == nullptr) {
      continue;
    }
    const Buffer& home = ctx.memory.at(loop.ops[0]->result(i));
    const Op& op = *update->ops[0];
    const NestAccess& from = update->move().view;
    const Kernel* maker = maker_of(body, from.value);
    Buffer* part = maker == nullptr ? nullptr : ctx.memory.find(from.value);
    const Dims &all = op.type().dims, &sizes = op.operand_type(1).dims;
    const Dims strides = row_major_strides(all);
    if (home.vmem >= 0 || home.slot < 0 || part == nullptr || part->bytes == 0 || part->slot >= 0 ||
        (maker->kind != KernelClass::kLoop && maker->kind != KernelClass::kContract) ||
        from.view.offset != 0 || from.value->type.count() != op.operand_type(1).count() ||
        !is_contiguous(sizes, from.view.stride) || !is_contiguous(sizes, strides) ||
        !all_readers(body, from.value, [&](const Kernel& reader) {
          return follows_places(reader.kind) || reader.kind == KernelClass::kYield ||
                 &reader == update;
        })) {
      continue;
    }
    const auto start = start_of(op, 2, all, sizes, strides, loop);
    if (start && put(ctx, *part, home, 0, *start)) {
      part->must_store = true;
      part->part = op.result();
    }
  }
}

}  // namespace tpu::compiler
