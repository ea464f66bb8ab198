#include "plan/slots.hpp"

#include <set>
#include <string>

#include "ir/error_kinds.hpp"
#include "plan/scratch.hpp"

namespace tpu::compiler {

namespace {

int add_slot(Slots& slots, exe::SlotKind kind, int64_t bytes, size_t index,
             const std::string& name) {
  SlotInfo s;
  s.kind = kind;
  s.bytes = static_cast<uint64_t>(bytes);
  s.index = static_cast<uint32_t>(index);
  s.name = name;
  slots.list.push_back(s);
  return static_cast<int>(slots.list.size()) - 1;
}

// Constants that a kernel reads from a buffer that no kernel writes.
void add_constants(Slots& slots, const KernelProgram& kernels) {
  std::set<const Value*> known;  // looked up only
  for_each_kernel(kernels,
                  [&](const Kernel& k) { known.insert(k.writes.begin(), k.writes.end()); });
  for_each_kernel(kernels, [&](const Kernel& k) {
    for (const Value* v : k.reads) {
      if (v->def == nullptr || v->def->kind != Kind::kConstant || !known.insert(v).second) {
        continue;
      }
      const size_t n = slots.constants.size();
      slots.constants.push_back(v->def->as<ConstantAttrs>().value.expanded());
      slots.homes.emplace_back(v, add_slot(slots, exe::SlotKind::constant, v->type.bytes(), n,
                                           "constant " + std::to_string(n)));
    }
  });
}

}  // namespace

Slots make_slots(const Module& module, const KernelProgram& kernels,
                 const spec::BoardParams& board) {
  Slots slots;
  const Function& main = *module.main;
  for (size_t i = 0; i < main.body.args.size(); ++i) {
    const Value* v = main.body.args[i].get();
    slots.homes.emplace_back(
        v, add_slot(slots, exe::SlotKind::argument, v->type.bytes(), i, main.args[i].name));
  }
  slots.first_result = static_cast<int>(slots.list.size());
  const Op* ret = main.body.terminator();
  for (size_t i = 0; i < ret->operands.size(); ++i) {
    add_slot(slots, exe::SlotKind::result, ret->operands[i]->type.bytes(), i, main.results[i].name);
  }
  for (size_t i = 0; i < main.args.size(); ++i) {
    const int r = main.args[i].alias_result;
    if (r >= 0) {
      slots.list[static_cast<size_t>(slots.first_result + r)].alias_of = static_cast<int>(i);
    }
  }
  add_constants(slots, kernels);
  slots.scratch = add_slot(slots, exe::SlotKind::scratch, 0, 0, "scratch");
  int64_t bytes = 0;
  for (const SlotInfo& s : slots.list) {
    bytes += s.alias_of < 0 ? static_cast<int64_t>(s.bytes) : 0;
  }
  if (bytes > board.hbm.gib_per_core << 30) {
    throw HbmExhausted("arguments, results and constants need " + std::to_string(bytes) +
                       " bytes of HBM, a core has " + std::to_string(board.hbm.gib_per_core) +
                       " GiB:\n" + memory_report(slots.list, Scratch{}, {}));
  }
  return slots;
}

}  // namespace tpu::compiler
