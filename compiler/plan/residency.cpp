#include "plan/residency.hpp"

#include <algorithm>

namespace tpu::compiler {

spec::Addr home_of(const Placement& b, int64_t byte) {
  if (b.slot < 0) {
    throw Error("internal: a buffer that has no place in HBM is addressed there");
  }
  spec::Addr a = hbm_addr(b.slot, b.offset + byte);
  a.reg = b.moving;
  a.slot_reg = b.table;
  return a;
}

spec::Addr place_of(const Placement& b, int64_t byte) {
  return b.vmem >= 0 ? vmem_addr(b.vmem + byte) : home_of(b, byte);
}

// Regions keep values in place while they run: then VMEM should not be cut up.
static bool has_regions(const KernelProgram& kernels) {
  return std::ranges::any_of(kernels.kernels,
                             [](const Kernel& k) { return !k.control().regions.empty(); });
}

Residency::Residency(const KernelProgram& kernels, const Slots& slots, const VirtualPads& pads,
                     const spec::BoardParams& board, int64_t lock_limit)
    : vmem_bytes_(board.core.vmem_kib * 1024),
      scratch_slot_(slots.scratch),
      vmem_(vmem_bytes_, !has_regions(kernels)) {
  locks_.limit = lock_limit;
  for (const auto& [value, place] : slots.homes) {
    Buffer& b = add(value);
    b.slot = place.slot;
    b.offset = place.offset;
    b.in_hbm = true;
  }
  find_reads(kernels, pads);
}

Buffer& Residency::add(const Value* v) {
  const auto [it, fresh] = buffers_.try_emplace(v);
  Buffer& b = it->second;
  if (fresh) {
    b.value = v;
    b.bytes = v->type.bytes();
    b.number = static_cast<int>(ordered_.size());
    ordered_.push_back(&b);
    if (reads_known_) {
      dead_[b.number] = &b;
    }
  }
  return b;
}

Buffer* Residency::find(const Value* v) {
  const auto it = buffers_.find(v);
  return it == buffers_.end() ? nullptr : &it->second;
}

// What a virtual pad is made of lives until its last reader.
static void read_at(Residency& memory, const Value* v, const VirtualPads& pads, int order) {
  memory.at(v).reads.push_back(order);
  if (const auto pad = pads.find(v); pad != pads.end()) {
    for (const VirtualPad::Part& part : pad->second.parts) {
      read_at(memory, part.base, pads, order);
    }
  }
}

// What an exchange beside other kernels sends is read until its result is: another value in the
// same bytes would wait for that. Small values are left out: they may be in VMEM, and would be
// stored.
void Residency::read_until_arrival(const Kernel& k) {
  for (size_t i = 0; i < k.reads.size(); ++i) {
    const std::vector<int>& readers = at(k.ops[0]->result(i)).reads;
    Buffer& sent = at(k.reads[i]);
    if (!readers.empty() && sent.bytes > kKeptBytes) {
      sent.reads.push_back(*std::min_element(readers.begin(), readers.end()));
    }
  }
}

// What a region takes from outside is read until the region's end, whatever runs inside.
void Residency::find_reads(const KernelProgram& kernels, const VirtualPads& pads) {
  for_each_kernel(kernels, [&](const Kernel& k) {
    for (const Value* v : k.writes) {
      add(v);
    }
    for (size_t r = 0; r < k.control().regions.size(); ++r) {
      for (const auto& a : k.ops[0]->regions[r]->args) {
        add(a.get());
      }
    }
  });
  for (Buffer* b : ordered_) {
    b->reads.clear();
  }
  dying_.clear();
  died_ = 0;
  copies_out_ = INT_MAX;
  for_each_kernel(kernels, [&](const Kernel& k) {
    copies_out_ = k.kind == KernelClass::kCopyOut ? std::min(copies_out_, k.order) : INT_MAX;
    for (const Value* v : k.reads) {
      read_at(*this, v, pads, k.order);
    }
    for (const Value* v : k.control().captures) {
      at(v).reads.push_back(k.end);
    }
  });
  for_each_kernel(kernels, [&](const Kernel& k) {
    if (k.exchange().overlaps) {
      read_until_arrival(k);
    }
  });
  for (Buffer* b : ordered_) {
    std::sort(b->reads.begin(), b->reads.end());
    dying_.emplace_back(b->reads.empty() ? 0 : b->reads.back(), b);
  }
  reads_known_ = true;
  std::sort(dying_.begin(), dying_.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second->number) < std::pair(b.first, b.second->number);
  });
}

void Residency::enter(int order, uint32_t op_id) {
  now_ = order;
  op_id_ = op_id;
}

int Residency::next_read(const Buffer& b) const {
  const auto it = std::upper_bound(b.reads.begin(), b.reads.end(), now_);
  return it == b.reads.end() ? INT_MAX : *it;
}

bool Residency::evict_one() {
  std::erase_if(resident_, [](const auto& entry) { return entry.second->vmem < 0; });
  // The running kernel may still read its operands: they count as the nearest.
  const auto when = [this](const Buffer& b) {
    const auto it = std::lower_bound(b.reads.begin(), b.reads.end(), now_);
    return it == b.reads.end() ? INT_MAX : *it;
  };
  Buffer* victim = nullptr;
  int victim_read = -1;
  for (const auto& [number, b] : resident_) {
    if (const int read = when(*b); read > victim_read && !b->locked && !pins_.pinned.contains(b)) {
      victim = b;
      victim_read = read;
    }
  }
  if (victim == nullptr) {
    return false;
  }
  if (!victim->in_hbm &&
      (victim_read != INT_MAX || victim->must_store || pins_.held.contains(victim))) {
    store(*victim, op_id_);
  }
  drop(*victim);
  return true;
}

void Residency::flush() {
  while (evict_one()) {
  }
}

std::optional<int64_t> Residency::take(int64_t bytes) {
  auto address = vmem_.take(bytes);
  if (address) {
    return address;
  }
  Reservation evictions(*this);
  while (!address && evict_one()) {
    address = vmem_.take(bytes);
  }
  if (address) {
    evictions.keep();
  }
  return address;
}

bool Residency::place(Buffer& b) {
  if (b.target >= 0) {
    touch(b);
    b.locked = true;
    b.vmem = b.target;
    return true;
  }
  const auto address = take(b.bytes);
  touch(b);
  b.vmem = address.value_or(-1);
  return address.has_value();
}

void Residency::give(int64_t address) {
  if (locks_.homes.contains(address)) {
    return;  // a carried value's, whatever lies there now
  }
  if (const auto allocation = shared_.give(address)) {
    vmem_.give(*allocation);
  }
}

void Residency::drop(Buffer& b) {
  if (b.vmem >= 0) {
    touch(b);
    give(b.vmem);
    b.vmem = -1;
  }
}

void Residency::give_home(Buffer& b) {
  if (b.slot < 0) {
    touch(b);
    b.slot = scratch_slot_;
    b.scratch = true;
    b.offset = scratch_.take(b.bytes, b.value, op_id_);
  }
}

void mark_home(Residency& memory, Buffer& b) {
  memory.touch(b);
  b.in_hbm = true;
}

void Residency::store(Buffer& b, uint32_t op_id) {
  give_home(b);
  touch(b);
  move({vmem_addr(b.vmem), home_of(b), b.bytes, elem_bytes(b.value->type.elem), op_id});
  b.in_hbm = true;
}

bool load(Residency& memory, Buffer& b, uint32_t op_id) {
  if (b.vmem >= 0) {
    return true;
  }
  if (!b.in_hbm) {
    throw Error("internal: a buffer is read before it is written");
  }
  const auto address = memory.take(b.bytes);
  if (!address) {
    return false;
  }
  memory.touch(b);
  b.vmem = *address;
  memory.move({home_of(b), vmem_addr(b.vmem), b.bytes, elem_bytes(b.value->type.elem), op_id});
  return true;
}

void take_home(Residency& memory, Buffer& from, Buffer& to) {
  memory.touch(from);
  memory.touch(to);
  to.slot = from.slot;
  to.offset = from.offset;
  to.scratch = true;
  from.scratch = from.in_hbm = false;
  from.slot = -1;
}

bool lock(Residency& memory, Buffer& b) {
  if (!memory.locks().fits(b.bytes)) {
    return false;
  }
  memory.touch(b);
  memory.locks().bytes += round_up(b.bytes, kAlign);
  b.locked = true;
  return true;
}

void unlock(Residency& memory, Buffer& b) {
  memory.touch(b);
  memory.locks().bytes -= round_up(b.bytes, kAlign);
  b.locked = false;
}

void Residency::drop_dead() {
  std::vector<Buffer*> results;
  for (const auto& [number, b] : resident_) {
    if (b->vmem >= 0 && b->in_hbm && b->must_store && !b->locked && !pins_.held.contains(b) &&
        next_read(*b) >= copies_out_) {
      results.push_back(b);
    }
  }
  std::ranges::for_each(results, [&](Buffer* b) { drop(*b); });
  for (; died_ < dying_.size() && dying_[died_].first <= now_; ++died_) {
    Buffer* b = dying_[died_].second;
    dead_[b->number] = b;
  }
  for (auto it = dead_.begin(); it != dead_.end();) {
    Buffer& b = *it->second;
    if (next_read(b) != INT_MAX || b.locked || pins_.held.contains(&b)) {
      ++it;
      continue;
    }
    drop(b);
    if (b.scratch && b.slot >= 0 && b.in_hbm) {
      touch(b);
      scratch_.give(b.offset);
      b.scratch = false;
      b.in_hbm = false;
    }
    // What is made once and has been read, as arguments of the program too, is done with; carried
    // values are made again at every iteration.
    const Region* owner = b.value->owner;
    const bool once = b.value->def != nullptr || (owner != nullptr && owner->parent == nullptr);
    const bool over = once && !b.reads.empty() && !b.scratch;
    if (over && reservations_ > 0) {
      buried_.push_back(&b);
    }
    it = over ? dead_.erase(it) : std::next(it);
  }
}

void Residency::touch(Buffer& b) {
  resident_[b.number] = &b;
  if (reservations_ > 0) {
    touched_.emplace_back(&b, b);
  }
}

Reservation::Reservation(Residency& memory)
    : memory_(memory),
      vmem_(memory.vmem_.mark()),
      scratch_(memory.scratch_.mark()),
      shared_(memory.shared_.mark()),
      moves_(memory.moves_.size()),
      touched_(memory.touched_.size()),
      died_(memory.died_),
      buried_(memory.buried_.size()),
      pins_(memory.pins_),
      locks_(memory.locks_) {
  ++memory.reservations_;
}

Reservation::~Reservation() {
  if (kept_) {
    memory_.vmem_.keep(vmem_);
    memory_.shared_.keep();
  } else {
    memory_.vmem_.undo(vmem_);
    memory_.scratch_.undo(scratch_);
    memory_.shared_.undo(shared_);
    memory_.moves_.resize(moves_);
    memory_.pins_ = pins_;
    memory_.locks_ = locks_;
    memory_.died_ = died_;
    for (; memory_.buried_.size() > buried_; memory_.buried_.pop_back()) {
      memory_.dead_[memory_.buried_.back()->number] = memory_.buried_.back();
    }
    for (; memory_.touched_.size() > touched_; memory_.touched_.pop_back()) {
      const auto& [buffer, placement] = memory_.touched_.back();
      static_cast<Placement&>(*buffer) = placement;
      memory_.resident_[buffer->number] = buffer;
    }
  }
  if (--memory_.reservations_ == 0) {
    memory_.touched_.clear();
    memory_.buried_.clear();
  }
}

void leave_vmem(Residency& memory, Buffer& b, uint32_t op_id) {
  if (b.vmem >= 0 && !b.in_hbm) {
    memory.store(b, op_id);
  }
  memory.drop(b);
}

void place_result(Residency& memory, Buffer& out) {
  if (out.bytes > memory.whole_limit() || !memory.place(out)) {
    memory.give_home(out);
  }
}

void finish_result(Residency& memory, Buffer& out, uint32_t op_id) {
  if (out.vmem < 0) {
    memory.touch(out);
    out.in_hbm = true;
  } else if (out.must_store) {
    memory.store(out, op_id);
  }
}

void take_vmem(Residency& memory, Buffer& from, Buffer& to) {
  memory.touch(from);
  memory.touch(to);
  to.vmem = from.vmem;
  to.locked = from.locked;
  from.vmem = -1;
  from.locked = false;
  for (Buffer* b : memory.all()) {  // nobody else can be made there until the region ends
    if (b->target == to.vmem && b->vmem < 0) {
      memory.touch(*b);
      b->target = -1;
    }
  }
}

}  // namespace tpu::compiler
