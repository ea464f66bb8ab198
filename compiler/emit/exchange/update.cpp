// The update behind a summed piece: this core's part of every operand comes in, the elementwise
// kernels run on it, and the new parts of sharded state go home. Gathered values are put into areas
// of their own, for the way back.
#include <algorithm>

#include "emit/exchange/inflight.hpp"

namespace tpu::compiler {

namespace {

struct UpdateOperand {
  const Value* value = nullptr;
  bool input = false;
};

bool made_by(const Update& u, const Value* v) {
  return std::any_of(u.kernels.begin(), u.kernels.end(), [&](const UpdateKernel& k) {
    return std::find(k.writes.begin(), k.writes.end(), v) != k.writes.end();
  });
}

bool contains(const std::vector<const Value*>& list, const Value* v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

// Arrays of which a part lies in a slot: what is read, then what is written; each once. The sum
// itself is in the bucket.
std::vector<UpdateOperand> update_operands(const Update& u) {
  std::vector<UpdateOperand> out;
  const auto add = [&](const Value* v, bool input) {
    if (std::none_of(out.begin(), out.end(),
                     [&](const UpdateOperand& o) { return o.value == v; })) {
      out.push_back({v, input});
    }
  };
  for (const UpdateKernel& k : u.kernels) {
    for (const NestAccess& a : k.nest.accesses) {
      if (a.view.stride[0] != 0 && !made_by(u, a.value) && a.value != u.sum) {
        add(a.value, true);
      }
    }
  }
  for (const UpdateKernel& k : u.kernels) {
    for (const Value* w : k.writes) {
      if (!contains(u.gathered, w)) {
        add(w, false);
      }
    }
  }
  return out;
}

}  // namespace

size_t update_slots(const Update& u) { return update_operands(u).size(); }

static int64_t update_slot(const InflightExchange& r, int64_t i, size_t number) {
  const std::vector<int64_t>& ring = r.slots[number];
  return ring[static_cast<size_t>(i) % ring.size()];
}

// This core's part of piece `i` in the home of an array, and the bytes that it may lie in.
static spec::Addr home_part(EmitContext& ctx, const InflightExchange& r, int64_t i, const Value* v,
                            bool write, MemRange& window) {
  const Buffer& b = ctx.memory.at(v);
  const int64_t unit = elem_bytes(v->type.elem);
  const int64_t at = r.parts[static_cast<size_t>(i)].element * unit;
  window.space = spec::Space::kHbm;
  window.slot = ctx.slots.root(b.slot);
  window.lo = b.offset + at;
  window.hi = window.lo + r.bytes / r.unit * unit;
  window.write = write;
  return offset_by(home_of(b, at), whole_register(r, r.stages() - 1, unit));
}

void load_update(EmitContext& ctx, InflightExchange& r, int64_t i) {
  const std::vector<UpdateOperand> operands =
      update_operands(*r.parts[static_cast<size_t>(i)].update);
  for (size_t n = 0; n < operands.size(); ++n) {
    if (!operands[n].input) {
      continue;
    }
    const int64_t unit = elem_bytes(operands[n].value->type.elem);
    MemRange window;
    const spec::Addr from = home_part(ctx, r, i, operands[n].value, false, window);
    ctx.sink.copy_bytes(from, vmem_addr(update_slot(r, i, n)), r.part_bytes() / r.unit * unit, unit,
                        r.id);
    std::get<Command>(ctx.sink.listing.items.back()).windows.push_back(window);
  }
}

// Programs of the update's kernels; the same for all pieces.
static const std::vector<UpdateCommand>& update_commands(EmitContext& ctx, InflightExchange& r,
                                                         const Update& u) {
  std::vector<UpdateCommand>& commands = r.commands[&u];
  if (!commands.empty()) {
    return commands;
  }
  for (const UpdateKernel& k : u.kernels) {
    VpuGenOptions o;
    o.flat = true;
    o.col_loop = 0;
    for (size_t n = 0; n < k.nest.nodes.size(); ++n) {
      if (contains(k.writes, k.nest.nodes[n].op->result())) {
        o.stores.push_back(static_cast<int>(n));
      }
    }
    const VpuGenResult gen = generate_vpu(k.nest, o);
    commands.push_back({&k, gen.roles, ctx.sink.listing.add_program(gen.program)});
  }
  return commands;
}

void emit_update(EmitContext& ctx, InflightExchange& r, int64_t i) {
  const Update& u = *r.parts[static_cast<size_t>(i)].update;
  const std::vector<UpdateOperand> operands = update_operands(u);
  const int64_t count = r.part_bytes() / r.unit;
  const int own = whole_register(r, r.stages() - 1, r.unit);
  for (const UpdateCommand& uc : update_commands(ctx, r, u)) {
    auto c = flat_vpu_kernel(count, r.id);
    Command command;
    for (const AccessRole& role : uc.roles) {
      const auto n = static_cast<size_t>(role.index);
      const bool load = role.kind == AccessRole::Kind::kLoad;
      const Value* v =
          load ? uc.kernel->nest.accesses[n].value : uc.kernel->nest.nodes[n].op->result();
      const int64_t unit = elem_bytes(v->type.elem);
      spec::VpuAccess a{};
      a.type = static_cast<uint8_t>(isa_elem(v->type.elem));
      if (load && uc.kernel->nest.accesses[n].view.stride[0] == 0) {
        a.addr = vmem_addr(r.scalars.at(v) + uc.kernel->nest.accesses[n].view.offset * unit);
        command.accesses.push_back(a);
        continue;
      }
      const auto way = std::find(u.gathered.begin(), u.gathered.end(), v);
      if (v == u.sum) {
        a.addr = offset_by(vmem_addr(r.bucket(i)), own);
        command.windows.push_back(vmem_range(r.bucket(i), r.bytes, false));
      } else if (way != u.gathered.end()) {
        const BackArea back = back_area(r, i, static_cast<size_t>(way - u.gathered.begin()));
        a.addr = offset_by(vmem_addr(back.address), whole_register(r, r.stages() - 1, unit));
        command.windows.push_back(vmem_range(back.address, back.bytes, !load));
      } else {
        const auto at = std::find_if(operands.begin(), operands.end(),
                                     [&](const UpdateOperand& o) { return o.value == v; });
        a.addr = vmem_addr(update_slot(r, i, static_cast<size_t>(at - operands.begin())));
      }
      a.lane = static_cast<int32_t>(unit);
      a.loop[3] = static_cast<int32_t>(1024 * unit);
      command.accesses.push_back(a);
    }
    command.program = uc.program;
    command.body = c;
    ctx.sink.append(std::move(command));
  }
  for (size_t n = 0; n < operands.size(); ++n) {
    if (!contains(u.sharded, operands[n].value)) {
      continue;
    }
    const int64_t unit = elem_bytes(operands[n].value->type.elem);
    MemRange window;
    const spec::Addr to = home_part(ctx, r, i, operands[n].value, true, window);
    ctx.sink.copy_bytes(vmem_addr(update_slot(r, i, n)), to, r.part_bytes() / r.unit * unit, unit,
                        r.id);
    std::get<Command>(ctx.sink.listing.items.back()).windows.push_back(window);
  }
}

}  // namespace tpu::compiler
