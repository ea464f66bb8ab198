// Regions of control flow. At a boundary all queues are empty and VMEM holds nothing but locked
// buffers, whatever path leads there: values that cross the boundary (carried values, results, what
// the region takes from outside) keep one place from its beginning to its end, either locked in
// VMEM or in HBM. Everything else in VMEM is the region's own and gone at its end.
#include <algorithm>
#include <climits>

#include "emit/emitter.hpp"

namespace tpu::compiler {

Emitter::Place Emitter::place_of(const Buffer& b) const {
  return b.vmem >= 0 ? Place{true, -1, b.vmem}
                     : Place{false, b.slot < 0 ? -1 : listing.root_slot(b.slot), b.offset};
}

spec::Addr Emitter::address(const Place& p) const {
  return p.vmem ? vmem_addr(p.at) : hbm_addr(p.slot, p.at);
}

bool Emitter::overlap(const Place& a, int64_t a_bytes, const Place& b, int64_t b_bytes) const {
  return a.vmem == b.vmem && a.slot == b.slot && a.at < b.at + b_bytes && b.at < a.at + a_bytes;
}

// Copies as if all at once: a place is overwritten when nobody has to read it any more; what goes
// round in a circle (a, b = b, a) is taken aside first.
void Emitter::move_all(std::vector<Move> moves, uint32_t id) {
  std::erase_if(moves, [](const Move& m) { return m.src == m.dst || m.bytes == 0; });
  std::vector<Place> aside;
  while (!moves.empty()) {
    const auto free = std::find_if(moves.begin(), moves.end(), [&](const Move& m) {
      return std::none_of(moves.begin(), moves.end(), [&](const Move& other) {
        return &other != &m && overlap(m.dst, m.bytes, other.src, other.bytes);
      });
    });
    if (free != moves.end()) {
      copy_bytes(address(free->src), address(free->dst), free->bytes, free->unit, id);
      moves.erase(free);
      continue;
    }
    Move& m = moves.front();
    Place to{false, scratch_slot_, -1};
    if (m.src.vmem) {
      try {
        to = {true, -1, take(m.bytes)};
      } catch (const VmemFull&) {
        to.vmem = false;
      }
    }
    if (!to.vmem) {
      to.at = scratch_.take(m.bytes, nullptr, running_op_);
    }
    aside.push_back(to);
    copy_bytes(address(m.src), address(to), m.bytes, m.unit, id);
    m.src = to;
  }
  for (const Place& p : aside) {
    if (p.vmem) {
      give(p.at);
    } else {
      scratch_.give(p.at);
    }
  }
}

// The body may write over a carried value, since it brings the next one. A condition may not.
bool Emitter::is_carried_here(const Buffer& b) const {
  const Region* owner = b.value->owner;
  return owner != nullptr && owner->parent != nullptr && owner->parent->kind == Kind::kWhile &&
         owner == owner->parent->regions[1].get() && homes_.contains(b.vmem);
}

void Emitter::take_vmem(Buffer& from, Buffer& to) {
  to.vmem = from.vmem;
  to.locked = from.locked;
  from.vmem = -1;
  from.locked = false;
  for (Buffer* b : ordered_) {  // nobody else can be made there until the region ends
    b->target = b->target == to.vmem && b->vmem < 0 ? -1 : b->target;
  }
}

bool Emitter::lock(Buffer& b) {
  const int64_t bytes = round_up(b.bytes, kAlign);
  if (locked_bytes_ + bytes > lock_limit_) {
    return false;
  }
  locked_bytes_ += bytes;
  b.locked = true;
  return true;
}

void Emitter::unlock(Buffer& b) {
  locked_bytes_ -= round_up(b.bytes, kAlign);
  b.locked = false;
}

// Brings VMEM into the state that holds at every boundary of the regions of `k`: what they take
// from outside is locked (loaded first, if it pays), then other live values while there is room;
// the rest goes home. Returns the buffers that it locked.
std::vector<Buffer*> Emitter::settle(const Kernel& k, bool preload, uint32_t id) {
  std::vector<Buffer*> mine, captured, others;
  for (const Value* v : k.captures) {
    captured.push_back(&buffer(v));
  }
  for (Buffer* b : ordered_) {
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
    if (b->locked || b->bytes == 0 || (b->vmem < 0 && !preload) || !lock(*b)) {
      continue;
    }
    mine.push_back(b);
    try {
      load(*b, id);
    } catch (const VmemFull&) {
      unlock(*b);
      mine.pop_back();
    }
  }
  for (Buffer* b : others) {
    if (next_read(*b) != INT_MAX && b->vmem >= 0 && lock(*b)) {
      mine.push_back(b);
    }
  }
  for (Buffer* b : ordered_) {
    if (b->vmem < 0 || b->locked) {
      continue;
    }
    if (!b->in_hbm && (next_read(*b) != INT_MAX || b->must_store)) {
      store(*b, id);
    }
    give(b->vmem);
    b->vmem = -1;
  }
  return mine;
}

// The place of a result (or carried value) of an op with regions: VMEM if it is small enough.
void Emitter::give_region_home(Buffer& out) {
  if (out.bytes == 0) {
    return;
  }
  if (out.vmem < 0 && lock(out)) {
    try {
      out.vmem = place(out);
    } catch (const VmemFull&) {
      unlock(out);
    }
  }
  if (out.vmem >= 0) {
    homes_.insert(out.vmem);
    return;
  }
  give_home(out);
  out.in_hbm = out.locked = true;
}

void Emitter::end_region_home(Buffer& out, uint32_t id) {
  if (out.bytes == 0) {
    return;
  }
  if (out.vmem < 0) {
    out.locked = false;
    out.in_hbm = true;
    return;
  }
  unlock(out);
  if (out.target >= 0) {
    out.locked = true;  // it is the home of a carried value around this op
  } else {
    homes_.erase(out.vmem);
  }
  out.in_hbm = false;
  if (out.must_store) {
    store(out, id);
  }
}

// Lets `made` be written into the home of the value that it replaces, if that is dead by then.
void Emitter::aim_at_home(const KernelProgram& region, const Value* made, const Value* old,
                          const Buffer& home) {
  const auto at = buffers_.find(made);
  if (at == buffers_.end() || made == old || home.bytes == 0 || at->second.slot >= 0 ||
      at->second.target >= 0) {
    return;
  }
  const auto maker =
      std::find_if(region.kernels.begin(), region.kernels.end(), [&](const Kernel& k) {
        return std::find(k.writes.begin(), k.writes.end(), made) != k.writes.end();
      });
  if (maker == region.kernels.end() || (old != nullptr && !may_replace(region, made, old))) {
    return;
  }
  Buffer& b = at->second;
  if (home.vmem < 0) {
    b.slot = home.slot;
    b.offset = home.offset;
    b.must_store = true;
    return;
  }
  const bool reads_old = old != nullptr && std::find(maker->reads.begin(), maker->reads.end(),
                                                     old) != maker->reads.end();
  if (!reads_old || (maker->kind == KernelClass::kLoop && stores_last(*maker, made, old))) {
    b.target = home.vmem;
  }
}

// Emits the kernels of a region; its yield is returned, not emitted.
const Kernel& Emitter::emit_region(const KernelProgram& region) {
  peers_.clear();  // registers that another path may not have set
  ++regions_;
  for (const Kernel& k : region.kernels) {
    emit_kernel(k);
  }
  --regions_;
  return region.kernels.back();
}

// Results of a region to the homes of the results of `owner`.
void Emitter::yield(const Kernel& yield, const Op& owner, uint32_t id) {
  now_ = yield.order;
  std::vector<Move> moves;
  for (size_t i = 0; i < yield.carried.size(); ++i) {
    if (yield.carried[i] == nullptr) {
      continue;
    }
    const Buffer &from = buffer(yield.carried[i]), &to = buffer(owner.result(i));
    Place src = place_of(from);
    const Place dst = place_of(to), home{false, dst.slot, from.offset};
    if (!dst.vmem && from.in_hbm && from.slot >= 0 && listing.root_slot(from.slot) == dst.slot &&
        home == dst) {
      src = dst;  // it was written there
    }
    moves.push_back({src, dst, to.bytes, elem_bytes(to.value->type.elem)});
  }
  move_all(std::move(moves), id);
}

// Everything in VMEM that is not locked goes; buffers of the region are dead.
void Emitter::clean_region(const KernelProgram& region) {
  for_each_kernel(region, [&](const Kernel& k) {
    for (const Value* v : k.writes) {
      Buffer& b = buffer(v);
      b.locked = false;
      if (b.vmem >= 0) {
        give(b.vmem);
      }
      b.vmem = -1;
      if (b.scratch && b.slot >= 0) {
        scratch_.give(b.offset);
        b.scratch = false;
        b.slot = -1;
      }
      b.in_hbm = false;
    }
  });
  for (Buffer* b : ordered_) {
    if (b->vmem >= 0 && !b->locked) {
      give(b->vmem);
      b->vmem = -1;
    }
  }
  peers_.clear();
}

}  // namespace tpu::compiler
