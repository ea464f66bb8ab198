#include "plan/least_memory.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/error_kinds.hpp"
#include "plan/op_table.hpp"
#include "plan/scratch.hpp"

namespace tpu::compiler {

namespace {

struct Alive {
  std::vector<const Value*> values;
  int64_t bytes = 0;
};

struct LeastMemory {
  Alive alive;
  const Kernel* kernel = nullptr;  // that makes the last of them
};

class Sweep {
 public:
  explicit Sweep(const VirtualPads& pads) : pads_(pads) {}

  // Walks over the kernels of a program (or region) while the values of `alive` are.
  void walk(const KernelProgram& program, Alive alive) {
    const Uses uses = uses_of(program);
    int place = 0;
    for (const Kernel& k : program.kernels) {
      enter_regions(k, place, uses, alive);
      // Others may write where they have read.
      const bool apart = k.kind == KernelClass::kLoop || k.kind == KernelClass::kContract;
      if (apart) {
        add_writes(k, place, uses, alive);
      }
      std::erase_if(alive.values, [&](const Value* v) {
        const auto use = uses.last.find(v);
        const bool dies = use != uses.last.end() && use->second == place;
        alive.bytes -= dies ? v->type.bytes() : 0;
        return dies;
      });
      if (!apart) {
        add_writes(k, place, uses, alive);
      }
      ++place;
    }
  }

  const LeastMemory& most() const { return most_; }

 private:
  struct Uses {
    std::unordered_map<const Value*, int> last;  // place of the last reader, in the program's list
    std::unordered_set<const Value*> elsewhere;  // may lie in a result or in a carried value
  };

  void add_writes(const Kernel& k, int place, const Uses& uses, Alive& alive) {
    for (const Value* v : k.writes) {
      const auto use = uses.last.find(v);
      if (use != uses.last.end() && use->second > place && !uses.elsewhere.contains(v) &&
          !pads_.contains(v) && std::ranges::find(alive.values, v) == alive.values.end()) {
        alive.values.push_back(v);
        alive.bytes += v->type.bytes();
      }
    }
    if (alive.bytes > most_.alive.bytes) {
      most_ = {alive, &k};
    }
  }

  // Only of values that the program's own kernels make: others live on.
  static Uses uses_of(const KernelProgram& program) {
    Uses uses;
    int place = 0;
    for (const Kernel& k : program.kernels) {
      for (const Value* v : k.reads) {
        if (const auto made = uses.last.find(v); made != uses.last.end()) {
          made->second = place;
        }
      }
      if (k.kind == KernelClass::kCopyOut || k.kind == KernelClass::kYield) {
        uses.elsewhere.insert(k.reads.begin(), k.reads.end());
      }
      for (const Value* v : k.writes) {
        uses.last.emplace(v, place);
      }
      ++place;
    }
    return uses;
  }

  // What lives on behind the kernel, or is read inside, is alive all through its regions.
  void enter_regions(const Kernel& k, int place, const Uses& uses, const Alive& alive) {
    if (k.control().regions.empty()) {
      return;
    }
    const auto& captures = k.control().captures;
    Alive around;
    for (const Value* v : alive.values) {
      const auto use = uses.last.find(v);
      if (use == uses.last.end() || use->second > place ||
          std::ranges::find(captures, v) != captures.end()) {
        around.values.push_back(v);
        around.bytes += v->type.bytes();
      }
    }
    for (const auto& region : k.control().regions) {
      if (region) {
        walk(*region, around);
      }
    }
  }

  const VirtualPads& pads_;
  LeastMemory most_;
};

}  // namespace

void check_least_memory(const KernelProgram& kernels, const Slots& slots, const VirtualPads& pads,
                        const spec::BoardParams& board, int64_t hbm_bytes) {
  Sweep sweep(pads);
  sweep.walk(kernels, {});
  int64_t kept = 0;
  for (const SlotInfo& slot : slots.list) {
    kept += static_cast<int64_t>(slot.bytes);
  }
  const LeastMemory& most = sweep.most();
  const int64_t least = kept + std::max<int64_t>(0, most.alive.bytes - board.core.vmem_kib * 1024);
  if (least <= hbm_bytes) {
    return;
  }
  OpTable ops;
  ops.id(*most.kernel);
  const Op* op = most.kernel->ops.empty() ? nullptr : most.kernel->ops.back();
  const Error error("the program needs at least " + std::to_string(least) + " bytes of HBM, " +
                        has_text(hbm_bytes) + ":\n" +
                        memory_report(slots.list, most.alive.values, ops.list().front()),
                    op == nullptr ? "" : source_name(op->kind), op == nullptr ? nullptr : op->loc);
  throw HbmExhausted(error, {most.alive.values, most.alive.bytes, least - hbm_bytes});
}

}  // namespace tpu::compiler
