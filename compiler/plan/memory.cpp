// Buffers: slots, homes of results, VMEM as a cache with farthest-next-read eviction.
#include <algorithm>
#include <climits>

#include "emit/emitter.hpp"

namespace tpu::compiler {

RangeAllocator::RangeAllocator(int64_t size) { free_[0] = size; }

int64_t RangeAllocator::take(int64_t bytes) {
  bytes = std::max(round_up(bytes, kAlign), kAlign);
  const auto fits = [&](const auto& hole) { return hole.second >= bytes; };
  auto it = std::find_if(free_.lower_bound(cursor_), free_.end(), fits);
  if (it == free_.end()) {
    it = std::find_if(free_.begin(), free_.end(), fits);
  }
  if (it == free_.end()) {
    return -1;
  }
  const auto [address, size] = *it;
  free_.erase(it);
  if (size > bytes) {
    free_[address + bytes] = size - bytes;
  }
  taken_[address] = bytes;
  used_ += bytes;
  cursor_ = address + bytes;
  peak_end_ = std::max(peak_end_, cursor_);
  return address;
}

void RangeAllocator::give(int64_t address) {
  const auto it = taken_.find(address);
  int64_t lo = address, bytes = it->second;
  used_ -= bytes;
  taken_.erase(it);
  auto next = free_.lower_bound(lo);
  if (next != free_.end() && next->first == lo + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto prev = std::prev(next);
    if (prev->first + prev->second == lo) {
      prev->second += bytes;
      return;
    }
  }
  free_[lo] = bytes;
}

int64_t Emitter::resident_limit() const { return board_.core.vmem_kib * 1024 / 4; }

Buffer& Emitter::new_buffer(const Value* v) {
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

// Slots: arguments, results, constants, scratch.
void Emitter::make_slots() {
  const Function& main = *module_.main;
  const auto add = [&](exe::SlotKind kind, int64_t bytes, size_t index, const std::string& name) {
    SlotInfo s;
    s.kind = kind;
    s.bytes = static_cast<uint64_t>(bytes);
    s.index = static_cast<uint32_t>(index);
    s.name = name;
    listing.slots.push_back(s);
    return static_cast<int>(listing.slots.size()) - 1;
  };
  const auto home = [&](const Value* v, int slot) {
    Buffer& b = new_buffer(v);
    b.slot = slot;
    b.in_hbm = true;
  };
  for (size_t i = 0; i < main.body.args.size(); ++i) {
    const Value* v = main.body.args[i].get();
    home(v, add(exe::SlotKind::argument, v->type.bytes(), i, main.args[i].name));
  }
  first_result_slot_ = static_cast<int>(listing.slots.size());
  const Op* ret = main.body.terminator();
  for (size_t i = 0; i < ret->operands.size(); ++i) {
    add(exe::SlotKind::result, ret->operands[i]->type.bytes(), i, main.results[i].name);
  }
  for (size_t i = 0; i < main.args.size(); ++i) {
    const int r = main.args[i].alias_result;
    if (r >= 0) {
      listing.slots[static_cast<size_t>(first_result_slot_ + r)].alias_of = static_cast<int>(i);
    }
  }
  std::set<const Value*> written;
  for_each_kernel(kernels_,
                  [&](const Kernel& k) { written.insert(k.writes.begin(), k.writes.end()); });
  for_each_kernel(kernels_, [&](const Kernel& k) {
    for (const Value* v : k.reads) {
      if (v->def == nullptr || v->def->kind != Kind::kConstant || buffers_.contains(v) ||
          written.contains(v)) {
        continue;
      }
      const size_t n = constants.size();
      constants.push_back(v->def->as<ConstantAttrs>().value.expanded());
      home(v, add(exe::SlotKind::constant, v->type.bytes(), n, "constant " + std::to_string(n)));
    }
  });
  scratch_slot_ = add(exe::SlotKind::scratch, 0, 0, "scratch");
  int64_t bytes = 0;
  for (const SlotInfo& s : listing.slots) {
    bytes += s.alias_of < 0 ? static_cast<int64_t>(s.bytes) : 0;
  }
  if (bytes > board_.hbm.gib_per_core << 30) {
    throw Error("arguments, results and constants need " + std::to_string(bytes) +
                " bytes of HBM, a core has " + std::to_string(board_.hbm.gib_per_core) + " GiB:\n" +
                memory());
  }
  plan_halos();
  find_reads();
}

// What a region takes from outside is read until the region's end, whatever runs inside.
void Emitter::find_reads() {
  for_each_kernel(kernels_, [&](const Kernel& k) {
    for (const Value* v : k.writes) {
      new_buffer(v);
    }
    for (size_t r = 0; r < k.regions.size(); ++r) {
      for (const auto& a : k.ops[0]->regions[r]->args) {
        new_buffer(a.get());
      }
    }
  });
  for_each_kernel(kernels_, [&](const Kernel& k) {
    for (const Value* v : k.reads) {
      buffers_.at(v).reads.push_back(k.order);
      read_halo_at(v, k.order);
    }
    for (const Value* v : k.captures) {
      buffers_.at(v).reads.push_back(k.end);
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

// A result lies in the slot of an argument: it may be written where it is made only if nobody reads
// the argument afterwards; a loop kernel may read it element by element at the same time.
bool Emitter::result_may_overwrite(const Value* result, int slot) const {
  const int root = listing.root_slot(slot);
  if (root == slot) {
    return true;
  }
  const Value* argument = module_.main->body.args[static_cast<size_t>(root)].get();
  return may_replace(kernels_, result, argument);
}

namespace {

bool holds(const std::vector<const Value*>& list, const Value* v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

}  // namespace

bool Emitter::may_replace(const KernelProgram& program, const Value* made, const Value* old) const {
  const auto maker = std::find_if(program.kernels.begin(), program.kernels.end(),
                                  [&](const Kernel& k) { return holds(k.writes, made); });
  if (maker == program.kernels.end()) {
    return false;
  }
  // Readers of the old value from the first writer on must be writers too, element by element.
  return std::all_of(maker, program.kernels.end(), [&](const Kernel& k) {
    return !holds(k.reads, old) || (holds(k.writes, made) && reads_in_place(k, old, made));
  });
}

// True if the kernel reads element i of the old value before it writes element i of the new one.
bool Emitter::reads_in_place(const Kernel& k, const Value* old, const Value* made) {
  const bool one_read = std::count(k.reads.begin(), k.reads.end(), old) == 1;
  const bool same =
      old->type.bytes() == made->type.bytes() && old->type.count() == made->type.count();
  switch (k.kind) {
    case KernelClass::kLoop: {
      if (!same || k.nest.has_reduce || k.first + k.nest.elements() != old->type.count()) {
        return false;
      }
      View all = k.nest.identity();
      all.offset = k.first;
      return std::all_of(k.nest.accesses.begin(), k.nest.accesses.end(),
                         [&](const NestAccess& a) { return a.value != old || a.view == all; });
    }
    case KernelClass::kAllReduce:  // updates read so; the values exchanged do not
      return same && std::none_of(k.spans.begin(), k.spans.end(),
                                  [&](const Span& s) { return k.reads[s.value] == old; });
    case KernelClass::kIndexed:
      return k.ops[0]->kind == Kind::kIndexedWrite && k.reads[0] == old && one_read;
    case KernelClass::kDynamicUpdate:
      return k.reads[0] == old && one_read;
    case KernelClass::kWhile: {
      const auto at = std::find(k.carried.begin(), k.carried.end(), old);
      return one_read && at != k.carried.end() && !holds(k.captures, old) &&
             k.ops[0]->result(static_cast<size_t>(at - k.carried.begin())) == made;
    }
    default:
      return false;
  }
}

void Emitter::plan_results() {
  const Op* ret = module_.main->body.terminator();
  result_home_.assign(ret->operands.size(), nullptr);
  for (const Kernel& k : kernels_.kernels) {
    if (k.kind != KernelClass::kCopyOut) {
      continue;
    }
    Buffer& b = buffers_.at(k.reads[0]);
    const int slot = first_result_slot_ + static_cast<int>(k.result);
    if (b.slot < 0 && result_may_overwrite(k.reads[0], slot)) {
      b.slot = slot;
      b.must_store = true;
      result_home_[k.result] = k.reads[0];
    }
  }
}

int Emitter::next_read(const Buffer& b) const {
  const auto it = std::upper_bound(b.reads.begin(), b.reads.end(), now_);
  return it == b.reads.end() ? INT_MAX : *it;
}

bool Emitter::evict_one() {
  // The running kernel may still read its operands: they count as the nearest.
  const auto when = [this](const Buffer& b) {
    const auto it = std::lower_bound(b.reads.begin(), b.reads.end(), now_);
    return it == b.reads.end() ? INT_MAX : *it;
  };
  Buffer* victim = nullptr;
  for (Buffer* b : ordered_) {
    if (b->vmem >= 0 && !b->locked && !pinned_.contains(b) &&
        (victim == nullptr || when(*b) > when(*victim))) {
      victim = b;
    }
  }
  if (victim == nullptr) {
    return false;
  }
  if (!victim->in_hbm &&
      (when(*victim) != INT_MAX || victim->must_store || held_.contains(victim))) {
    store(*victim, running_op_);
  }
  give(victim->vmem);
  victim->vmem = -1;
  return true;
}

int64_t Emitter::take(int64_t bytes) {
  for (;;) {
    const int64_t address = vmem_.take(bytes);
    if (address >= 0) {
      return address;
    }
    if (!evict_one()) {
      throw VmemFull{};
    }
  }
}

int64_t Emitter::place(Buffer& b) {
  if (b.target < 0) {
    return take(b.bytes);
  }
  b.locked = true;
  return b.target;
}

void Emitter::share(int64_t allocation, const std::vector<Buffer*>& inside) {
  for (const Buffer* b : inside) {
    shared_[b->vmem] = allocation;
  }
}

void Emitter::give(int64_t address) {
  if (homes_.contains(address)) {
    return;  // a carried value's, whatever lies there now
  }
  const auto it = shared_.find(address);
  if (it == shared_.end()) {
    vmem_.give(address);
    return;
  }
  const int64_t allocation = it->second;
  shared_.erase(it);
  if (std::none_of(shared_.begin(), shared_.end(),
                   [&](const auto& s) { return s.second == allocation; })) {
    vmem_.give(allocation);
  }
}

void Emitter::give_home(Buffer& b) {
  if (b.slot < 0) {
    b.slot = scratch_slot_;
    b.scratch = true;
    b.offset = scratch_.take(b.bytes, b.value, running_op_);
  }
}

void Emitter::store(Buffer& b, uint32_t id) {
  give_home(b);
  copy_bytes(vmem_addr(b.vmem), hbm(b), b.bytes, elem_bytes(b.value->type.elem), id);
  b.in_hbm = true;
}

void Emitter::load(Buffer& b, uint32_t id) {
  if (b.vmem >= 0) {
    return;
  }
  if (!b.in_hbm) {
    throw Error("internal: a buffer is read before it is written");
  }
  b.vmem = take(b.bytes);
  copy_bytes(hbm(b), vmem_addr(b.vmem), b.bytes, elem_bytes(b.value->type.elem), id);
}

void Emitter::drop_dead() {
  for (; died_ < dying_.size() && dying_[died_].first <= now_; ++died_) {
    Buffer* b = dying_[died_].second;
    dead_[b->number] = b;
  }
  for (auto it = dead_.begin(); it != dead_.end();) {
    Buffer& b = *it->second;
    if (next_read(b) != INT_MAX || b.locked || held_.contains(&b)) {
      ++it;
      continue;
    }
    if (b.vmem >= 0) {
      give(b.vmem);
      b.vmem = -1;
    }
    if (b.scratch && b.slot >= 0 && b.in_hbm) {
      scratch_.give(b.offset);
      b.scratch = false;
      b.in_hbm = false;
    }
    // A result that has been read is not made again; carried values are, at every iteration.
    const bool over = b.value->def != nullptr && !b.reads.empty() && !b.scratch;
    it = over ? dead_.erase(it) : std::next(it);
  }
}

}  // namespace tpu::compiler
