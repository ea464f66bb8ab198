#include "plan/regions.hpp"

#include <algorithm>
#include <climits>

#include "ir/control.hpp"
#include "plan/in_place.hpp"

namespace tpu::compiler {

namespace {

struct Place {  // of a buffer's bytes
  bool vmem = true;
  int slot = -1;
  int64_t at = -1;
  uint8_t moving = 0, table = 0;
  bool operator==(const Place&) const = default;
};

struct Transfer {
  Place src, dst;
  int64_t bytes = 0, unit = 1;
};

Place bytes_of(const Buffer& b) {
  return b.vmem >= 0 ? Place{true, -1, b.vmem} : Place{false, b.slot, b.offset, b.moving, b.table};
}

spec::Addr address(const Place& p) {
  spec::Addr a = p.vmem ? vmem_addr(p.at) : hbm_addr(p.slot, p.at);
  a.reg = p.moving;
  a.slot_reg = p.table;
  return a;
}

bool overlap(const Place& a, int64_t a_bytes, const Place& b, int64_t b_bytes) {
  return a.vmem == b.vmem && a.slot == b.slot && a.at < b.at + b_bytes && b.at < a.at + a_bytes;
}

// Copies as if all at once: a place is overwritten when nobody has to read it any more; what goes
// round in a circle (a, b = b, a) is taken aside first.
void transfer_all(Residency& memory, const Slots& slots, std::vector<Transfer> moves, uint32_t id) {
  std::erase_if(moves, [](const Transfer& m) { return m.src == m.dst || m.bytes == 0; });
  std::vector<Place> aside;
  while (!moves.empty()) {
    const auto free = std::find_if(moves.begin(), moves.end(), [&](const Transfer& m) {
      return std::none_of(moves.begin(), moves.end(), [&](const Transfer& other) {
        return &other != &m && overlap(m.dst, m.bytes, other.src, other.bytes);
      });
    });
    if (free != moves.end()) {
      memory.move({address(free->src), address(free->dst), free->bytes, free->unit, id});
      moves.erase(free);
      continue;
    }
    Transfer& m = moves.front();
    Place to{false, slots.scratch, -1};
    if (const auto area = m.src.vmem ? memory.take(m.bytes) : std::nullopt) {
      to = {true, -1, *area};
    } else {
      to.at = memory.scratch().take(m.bytes, nullptr, id);
    }
    aside.push_back(to);
    memory.move({address(m.src), address(to), m.bytes, m.unit, id});
    m.src = to;
  }
  for (const Place& p : aside) {
    if (p.vmem) {
      memory.give(p.at);
    } else {
      memory.scratch().give(p.at);
    }
  }
}

}  // namespace

bool is_carried_here(Residency& memory, const Buffer& b) {
  return is_carried(*b.value) && memory.locks().homes.contains(b.vmem);
}

std::vector<Buffer*> settle(Residency& memory, const Kernel& k, bool preload, uint32_t id) {
  std::vector<Buffer*> mine, captured, others;
  for (const Value* v : k.control().captures) {
    if (!k.control().passing.contains(v)) {
      captured.push_back(&memory.at(v));
    }
  }
  for (Buffer* b : memory.all()) {
    if (b->vmem >= 0 && !b->locked &&
        std::find(captured.begin(), captured.end(), b) == captured.end()) {
      others.push_back(b);
    }
  }
  const auto by_size = [](const Buffer* a, const Buffer* b) {
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->number < b->number;
  };
  std::sort(captured.begin(), captured.end(), by_size);
  std::sort(others.begin(), others.end(), by_size);
  for (Buffer* b : captured) {
    if (b->locked || b->bytes == 0 || (b->vmem < 0 && !preload) || !lock(memory, *b)) {
      continue;
    }
    mine.push_back(b);
    if (!load(memory, *b, id)) {
      unlock(memory, *b);
      mine.pop_back();
    }
  }
  for (Buffer* b : others) {
    if (memory.next_read(*b) != INT_MAX && b->vmem >= 0 && lock(memory, *b)) {
      mine.push_back(b);
    }
  }
  for (Buffer* b : memory.all()) {
    if (b->vmem < 0 || b->locked) {
      continue;
    }
    if (!b->in_hbm && (memory.next_read(*b) != INT_MAX || b->must_store)) {
      memory.store(*b, id);
    }
    memory.drop(*b);
  }
  return mine;
}

void give_region_home(Residency& memory, Buffer& out) {
  if (out.bytes == 0) {
    return;
  }
  if (out.vmem < 0 && lock(memory, out) && !memory.place(out)) {
    unlock(memory, out);
  }
  if (out.vmem >= 0) {
    memory.locks().homes.insert(out.vmem);
    return;
  }
  memory.give_home(out);
  memory.touch(out);
  out.in_hbm = out.locked = true;
}

void end_region_home(Residency& memory, Buffer& out, uint32_t id) {
  if (out.bytes == 0) {
    return;
  }
  memory.touch(out);
  if (out.vmem < 0) {
    out.locked = false;
    out.in_hbm = true;
    return;
  }
  unlock(memory, out);
  if (out.target >= 0) {
    out.locked = true;  // it is the home of a carried value around this op
  } else {
    memory.locks().homes.erase(out.vmem);
  }
  out.in_hbm = false;
  if (out.must_store) {
    memory.store(out, id);
  }
}

void aim_at_home(Residency& memory, const KernelProgram& region, const Value* made,
                 const Value* old, const Buffer& home) {
  Buffer* b = memory.find(made);
  if (b == nullptr || made == old || home.bytes == 0 || b->slot >= 0 || b->target >= 0) {
    return;
  }
  const auto maker =
      std::find_if(region.kernels.begin(), region.kernels.end(), [&](const Kernel& k) {
        return std::find(k.writes.begin(), k.writes.end(), made) != k.writes.end();
      });
  if (maker == region.kernels.end() ||
      (old != nullptr &&
       !may_replace(region, made, old,
                    home.vmem < 0 ? Epilogues::kInPlace : Epilogues::kOverOperands))) {
    return;
  }
  memory.touch(*b);
  if (home.vmem < 0) {
    b->slot = home.slot;
    b->offset = home.offset;
    b->must_store = true;
    return;
  }
  const bool reads_old = old != nullptr && std::find(maker->reads.begin(), maker->reads.end(),
                                                     old) != maker->reads.end();
  const auto& after = maker->contract().after;
  const Kernel* loop = maker->kind == KernelClass::kLoop ? &*maker
                       : after.size() == 1               ? after.front().get()
                                                         : nullptr;
  if (!reads_old || (loop != nullptr && stores_last(*loop, made, old))) {
    b->target = home.vmem;
    b->over_operand = old != nullptr && is_operand(*maker, old);
  }
}

std::vector<size_t> yield(Residency& memory, const Slots& slots, const Kernel& yield,
                          const Op& owner, uint32_t id) {
  memory.enter(yield.order, id);
  std::vector<Transfer> moves;
  std::vector<size_t> copied;
  for (size_t i = 0; i < yield.control().carried.size(); ++i) {
    if (yield.control().carried[i] == nullptr) {
      continue;
    }
    const Buffer &from = memory.at(yield.control().carried[i]), &to = memory.at(owner.result(i));
    Place src = bytes_of(from);
    const Place dst = bytes_of(to), home{false, dst.slot, from.offset, from.moving, from.table};
    if (!dst.vmem && from.in_hbm && from.slot >= 0 && from.slot == dst.slot && home == dst) {
      src = dst;  // it was written there
    }
    if (src != dst && to.bytes > 0) {
      copied.push_back(i);
    }
    moves.push_back({src, dst, to.bytes, elem_bytes(to.value->type.elem)});
  }
  transfer_all(memory, slots, std::move(moves), id);
  return copied;
}

void clean_region(Residency& memory, const KernelProgram& region) {
  for_each_kernel(region, [&](const Kernel& k) {
    for (const Value* v : k.writes) {
      Buffer& b = memory.at(v);
      memory.touch(b);
      b.locked = false;
      memory.drop(b);
      if (b.scratch && b.slot >= 0) {
        memory.scratch().give(b.offset);
        b.scratch = false;
        b.slot = -1;
      }
      b.in_hbm = false;
    }
  });
  for (Buffer* b : memory.all()) {
    if (b->vmem >= 0 && !b->locked) {
      memory.drop(*b);
    }
  }
}

// A value that dies here gives its place to the home.
void place_carried(Residency& memory, const Slots& slots, const Kernel& k, uint32_t id) {
  const Op& op = *k.ops[0];
  std::vector<size_t> order;
  std::vector<Transfer> moves;
  memory.pins().clear();
  for (size_t i = 0; i < k.control().carried.size(); ++i) {
    if (k.control().carried[i] != nullptr && k.control().carried[i]->type.bytes() > 0) {
      order.push_back(i);
      if (!k.control().overwritten[i]) {
        memory.pins().add(memory.at(k.control().carried[i]));
      }
    }
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const int64_t left = op.type(a).bytes(), right = op.type(b).bytes();
    return left != right ? left < right : a < b;
  });
  // Before any of them changes hands.
  std::vector<Place> source(k.control().carried.size());
  for (const size_t i : order) {
    if (!k.control().overwritten[i]) {
      source[i] = bytes_of(memory.at(k.control().carried[i]));
    }
  }
  for (const size_t i : order) {
    if (k.control().overwritten[i]) {
      give_region_home(memory, memory.at(op.result(i)));
      continue;
    }
    Buffer &init = memory.at(k.control().carried[i]), &out = memory.at(op.result(i));
    const bool dies = memory.next_read(init) == INT32_MAX && !init.locked && !init.must_store;
    const bool fits = memory.locks().fits(out.bytes);
    if (dies && fits && init.vmem >= 0 && out.target < 0) {
      lock(memory, out);
      memory.touch(init);
      out.vmem = init.vmem;
      init.vmem = -1;
    } else if (dies && !fits && out.slot < 0 && init.scratch && init.in_hbm && init.vmem < 0) {
      take_home(memory, init, out);
    }
    give_region_home(memory, out);
    moves.push_back({source[i], bytes_of(out), out.bytes, elem_bytes(out.value->type.elem)});
  }
  transfer_all(memory, slots, std::move(moves), id);
  memory.pins().clear();
}

void enter_body(Residency& memory, const Kernel& k, const Region& region) {
  for (size_t i = 0; i < region.args.size(); ++i) {
    if (k.control().carried[i] == nullptr) {
      continue;
    }
    Buffer& arg = memory.at(region.args[i].get());
    const Buffer& home = memory.at(k.ops[0]->result(i));
    memory.touch(arg);
    arg.vmem = home.vmem;
    arg.slot = home.vmem < 0 ? home.slot : -1;
    arg.offset = home.offset;
    arg.in_hbm = home.vmem < 0;
    arg.locked = home.vmem >= 0;
  }
}

void leave_body(Residency& memory, const Kernel& k, const Region& region) {
  for (size_t i = 0; i < region.args.size(); ++i) {
    if (k.control().carried[i] == nullptr) {
      continue;
    }
    Buffer& arg = memory.at(region.args[i].get());
    memory.touch(arg);
    memory.drop(arg);
    arg.slot = -1;
    arg.in_hbm = arg.locked = false;
  }
}

}  // namespace tpu::compiler
