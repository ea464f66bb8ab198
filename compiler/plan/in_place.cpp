#include "plan/in_place.hpp"

#include <algorithm>
#include <unordered_map>

#include "plan/loop_plan.hpp"

namespace tpu::compiler {

namespace {

bool holds(const std::vector<const Value*>& list, const Value* v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

// An update reads a piece of the old value before it writes that of the new one; another update of
// the same exchange reads it at another time.
bool updates_read_in_place(const ExchangePart& part, const Value* old, const Value* made) {
  const auto reads = [&](const Update& u) {
    return std::ranges::any_of(u.kernels, [&](const UpdateKernel& k) {
      return std::ranges::any_of(k.nest.accesses,
                                 [&](const NestAccess& a) { return a.value == old; });
    });
  };
  return std::ranges::all_of(part.updates, [&](const Update& u) {
    return !reads(u) || holds(u.gathered, made) || holds(u.sharded, made);
  });
}

// True if the kernel reads element i of the old value before it writes element i of the new one.
bool reads_in_place(const Kernel& k, const Value* old, const Value* made, Epilogues epilogues) {
  const bool one_read = std::count(k.reads.begin(), k.reads.end(), old) == 1;
  const bool same =
      old->type.bytes() == made->type.bytes() && old->type.count() == made->type.count();
  switch (k.kind) {
    case KernelClass::kLoop: {
      if (!same || k.loop().nest.has_reduce ||
          k.loop().first + k.loop().nest.elements() != old->type.count()) {
        return false;
      }
      View all = k.loop().nest.identity();
      all.offset = k.loop().first;
      return std::all_of(k.loop().nest.accesses.begin(), k.loop().nest.accesses.end(),
                         [&](const NestAccess& a) { return a.value != old || a.view == all; });
    }
    case KernelClass::kContract: {
      const ContractPart& part = k.contract();
      return epilogues != Epilogues::kApart && part.after.size() == 1 &&
             (epilogues == Epilogues::kOverOperands || !is_operand(k, old)) &&
             reads_in_place(*part.after.front(), old, made, epilogues);
    }
    case KernelClass::kAllReduce:  // updates read so; the values exchanged do not
      return same &&
             std::none_of(k.exchange().spans.begin(), k.exchange().spans.end(),
                          [&](const Span& s) { return k.reads[s.value] == old; }) &&
             updates_read_in_place(k.exchange(), old, made);
    case KernelClass::kIndexed:
      return k.ops[0]->kind == Kind::kIndexedWrite && k.reads[0] == old && one_read;
    case KernelClass::kDynamicUpdate:
      return k.reads[0] == old && one_read;
    case KernelClass::kWhile: {
      const auto at = std::find(k.control().carried.begin(), k.control().carried.end(), old);
      return one_read && at != k.control().carried.end() && !holds(k.control().captures, old) &&
             k.ops[0]->result(static_cast<size_t>(at - k.control().carried.begin())) == made;
    }
    default:
      return false;
  }
}

// Who makes, writes and reads some values of a program, in its order, so that a question for each
// result takes the time of the kernels that it is about. `writers` have the value in `writes`,
// `makers` compute it, as made_before() says.
class Touching {
 public:
  struct Kernels {
    std::vector<const Kernel*> makers, writers, readers;
  };

  // Of the results in `homes`, and of what these replace.
  Touching(const KernelProgram& program, const std::vector<const Value*>& homes,
           const Slots& slots) {
    for (size_t r = 0; r < homes.size(); ++r) {
      if (homes[r] != nullptr) {
        of_.try_emplace(homes[r]);
        of_.try_emplace(slots.results[r].replaces);
      }
    }
    for (const Kernel& k : program.kernels) {
      note_makers(k, k);
      for (const Value* v : k.writes) {
        note(v, k, &Kernels::writers);
      }
      for (const Value* v : k.reads) {
        note(v, k, &Kernels::readers);
      }
    }
  }

  const Kernels& operator[](const Value* v) const { return of_.at(v); }

 private:
  void note(const Value* v, const Kernel& k, std::vector<const Kernel*> Kernels::*list) {
    const auto it = of_.find(v);
    if (it != of_.end() && ((it->second.*list).empty() || (it->second.*list).back() != &k)) {
      (it->second.*list).push_back(&k);
    }
  }

  // What `part`, which is `k` or works on its blocks, computes.
  void note_makers(const Kernel& k, const Kernel& part) {
    note(part.out, k, &Kernels::makers);
    for (const Op* op : part.ops) {
      if (!part.loop().recomputed.contains(op)) {
        for (const auto& result : op->results) {
          note(result.get(), k, &Kernels::makers);
        }
      }
    }
    for (const auto& loop : part.contract().after) {
      note_makers(k, *loop);
    }
  }

  std::unordered_map<const Value*, Kernels> of_;  // looked up only
};

// Of the kernels from the one that writes `made` first: readers of the old value are writers, too,
// element by element.
bool may_replace(const std::vector<const Kernel*>& writers,
                 const std::vector<const Kernel*>& readers, const Value* made, const Value* old,
                 Epilogues epilogues) {
  return !writers.empty() && std::ranges::all_of(readers, [&](const Kernel* k) {
    return k->order < writers.front()->order ||
           (holds(k->writes, made) && reads_in_place(*k, old, made, epilogues));
  });
}

}  // namespace

bool is_operand(const Kernel& k, const Value* v) {
  return k.kind == KernelClass::kContract &&
         (k.contract().dot.lhs == v || k.contract().dot.rhs == v);
}

bool may_replace(const KernelProgram& program, const Value* made, const Value* old,
                 Epilogues epilogues) {
  std::vector<const Kernel*> writers, readers;
  for (const Kernel& k : program.kernels) {
    if (holds(k.writes, made)) {
      writers.push_back(&k);
    }
    if (holds(k.reads, old)) {
      readers.push_back(&k);
    }
  }
  return may_replace(writers, readers, made, old, epilogues);
}

// A result lies in the slot of an argument: it may be written where it is made only if nobody reads
// the argument afterwards; a loop kernel may read it element by element at the same time.
static bool result_may_overwrite(const Touching& touching, const Value* result,
                                 const ResultPlace& place) {
  return place.replaces == nullptr ||
         may_replace(touching[result].writers, touching[place.replaces].readers, result,
                     place.replaces, Epilogues::kApart);
}

std::vector<const Value*> place_results(const KernelProgram& kernels, const Slots& slots,
                                        Residency& memory) {
  std::vector<const Value*> made(slots.results.size(), nullptr);
  for (const Kernel& k : kernels.kernels) {
    if (k.kind == KernelClass::kCopyOut) {
      made[k.move().result] = k.reads[0];
    }
  }
  const Touching touching(kernels, made, slots);
  std::vector<const Value*> homes(slots.results.size(), nullptr);
  for (const Kernel& k : kernels.kernels) {
    if (k.kind != KernelClass::kCopyOut) {
      continue;
    }
    Buffer& b = memory.at(k.reads[0]);
    const ResultPlace& place = slots.results[k.move().result];
    if (b.slot < 0 && result_may_overwrite(touching, k.reads[0], place)) {
      b.slot = place.slot;
      b.offset = place.offset;
      b.must_store = true;
      homes[k.move().result] = k.reads[0];
    }
  }
  return homes;
}

void revise_results(const KernelProgram& kernels, const Slots& slots, int order, Residency& memory,
                    std::vector<const Value*>& homes) {
  const Touching touching(kernels, homes, slots);
  for (size_t r = 0; r < homes.size(); ++r) {
    const Value* v = homes[r];
    if (v == nullptr ||
        std::ranges::any_of(touching[v].makers,
                            [order](const Kernel* k) { return k->order < order; }) ||
        result_may_overwrite(touching, v, slots.results[r])) {
      continue;
    }
    Buffer& b = memory.at(v);
    b.slot = -1;
    b.offset = 0;
    b.must_store = false;
    homes[r] = nullptr;
  }
}

bool loads_what_it_stored(const VpuGenResult& program,
                          const std::function<bool(int node, int access)>& meets) {
  std::vector<int> stored;
  for (const spec::VpuInsn& i : program.program.code) {
    const auto op = static_cast<spec::VpuOp>(i.op);
    if (op != spec::VpuOp::kLoad && op != spec::VpuOp::kStore) {
      continue;
    }
    const AccessRole& role = program.roles.at(i.imm);
    if (role.kind == AccessRole::Kind::kStore) {
      stored.push_back(role.index);
    } else if (role.kind == AccessRole::Kind::kLoad &&
               std::ranges::any_of(stored, [&](int node) { return meets(node, role.index); })) {
      return true;
    }
  }
  return false;
}

bool stores_last(const Kernel& k, const Value* made, const Value* old) {
  VpuGenOptions options;
  choose_roles(k.loop().nest, options);
  options.stores = stored_nodes(k);
  const Nest& nest = k.loop().nest;
  return !loads_what_it_stored(generate_vpu(nest, options), [&](int node, int access) {
    return nest.nodes[static_cast<size_t>(node)].op->result() == made &&
           nest.accesses[static_cast<size_t>(access)].value == old;
  });
}

}  // namespace tpu::compiler
