// The update behind a summed piece: this core's part of every operand comes in, the elementwise
// kernels run on it, and the new parts of sharded state go home. Gathered values are put into areas
// of their own, for the way back.
#include <algorithm>

#include "emit/exchange/halving.hpp"

namespace tpu::compiler {

static bool contains(const std::vector<const Value*>& list, const Value* v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

static int64_t update_slot(const HalvingPlan& p, int64_t i, size_t number) {
  const std::vector<int64_t>& ring = p.slots[number];
  return ring[static_cast<size_t>(i) % ring.size()];
}

// Copies this core's part of piece `i` from the home of its operand to slot `number`, or `home`.
static void move_part(HalvingRun& r, int64_t i, size_t number, bool home) {
  const HalvingPlan& p = r.plan;
  const UpdateOperand& o = p.update_of(i)->operands[number];
  const int64_t unit = elem_bytes(o.value->type.elem), count = p.part_bytes() / p.unit;
  spec::Addr there = offset_by(o.home, whole_register(r, p.stages() - 1, unit));
  there.offset += p.piece(i).element * unit;
  MemRange window;
  window.space = spec::Space::kHbm;
  window.slot = o.root;
  window.lo = there.offset;
  window.hi = window.lo + p.bytes / p.unit * unit;
  window.write = home;
  const spec::Addr here = vmem_addr(update_slot(p, i, number));
  r.sink.copy_bytes(home ? here : there, home ? there : here, count * unit, unit, r.id);
  std::get<Command>(r.sink.listing.items.back()).windows.push_back(window);
}

void load_update(HalvingRun& r, int64_t i) {
  const std::vector<UpdateOperand>& operands = r.plan.update_of(i)->operands;
  for (size_t n = 0; n < operands.size(); ++n) {
    if (operands[n].input) {
      move_part(r, i, n, false);
    }
  }
}

// Programs of the update's kernels; the same for all pieces.
static const std::vector<UpdateCommand>& update_commands(HalvingRun& r, const Update& u) {
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
    commands.push_back({&k, gen.roles, r.sink.listing.add_program(gen.program)});
  }
  return commands;
}

// One operand of a kernel of the update, for this core's part of piece `i`.
static spec::VpuAccess part_access(HalvingRun& r, int64_t i, const UpdateKernel& k,
                                   const AccessRole& role, std::vector<MemRange>& windows) {
  const HalvingPlan& p = r.plan;
  const UpdatePlan& plan = *p.update_of(i);
  const Update& u = *plan.update;
  const auto n = static_cast<size_t>(role.index);
  const bool load = role.kind == AccessRole::Kind::kLoad;
  const Value* v = load ? k.nest.accesses[n].value : k.nest.nodes[n].op->result();
  const int64_t unit = elem_bytes(v->type.elem);
  spec::VpuAccess a{};
  a.type = static_cast<uint8_t>(isa_elem(v->type.elem));
  if (load && k.nest.accesses[n].view.stride[0] == 0) {
    a.addr = vmem_addr(p.scalars.at(v) + k.nest.accesses[n].view.offset * unit);
    return a;
  }
  const auto way = std::find(u.gathered.begin(), u.gathered.end(), v);
  if (v == u.sum) {
    a.addr = offset_by(vmem_addr(p.bucket(i)), whole_register(r, p.stages() - 1, p.unit));
    windows.push_back(vmem_range(p.bucket(i), p.bytes, false));
  } else if (way != u.gathered.end()) {
    const BackArea back = back_area(p, i, static_cast<size_t>(way - u.gathered.begin()));
    a.addr = offset_by(vmem_addr(back.address), whole_register(r, p.stages() - 1, unit));
    windows.push_back(vmem_range(back.address, back.bytes, !load));
  } else {
    const auto at = std::find_if(plan.operands.begin(), plan.operands.end(),
                                 [&](const UpdateOperand& o) { return o.value == v; });
    a.addr = vmem_addr(update_slot(p, i, static_cast<size_t>(at - plan.operands.begin())));
  }
  a.lane = static_cast<int32_t>(unit);
  a.loop[3] = static_cast<int32_t>(1024 * unit);
  return a;
}

void emit_update(HalvingRun& r, int64_t i) {
  const UpdatePlan& plan = *r.plan.update_of(i);
  for (const UpdateCommand& uc : update_commands(r, *plan.update)) {
    Command command;
    for (const AccessRole& role : uc.roles) {
      command.accesses.push_back(part_access(r, i, *uc.kernel, role, command.windows));
    }
    command.program = uc.program;
    command.body = flat_vpu_kernel(r.plan.part_bytes() / r.plan.unit, r.id);
    r.sink.append(std::move(command));
  }
  for (size_t n = 0; n < plan.operands.size(); ++n) {
    if (contains(plan.update->sharded, plan.operands[n].value)) {
      move_part(r, i, n, true);
    }
  }
}

}  // namespace tpu::compiler
