#include "plan/slots.hpp"

#include <array>
#include <set>
#include <string>

#include "ir/error_kinds.hpp"
#include "plan/scratch.hpp"
#include "tpu/spec/rings.h"

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

// Place of value `i` of main's arguments (results), all of which have been asked for before: in a
// slot of its own, or, for the high words of 64-bit integers, behind the low ones.
template <typename Info>
SlotPlace add_place(Slots& slots, exe::SlotKind kind, const std::vector<Info>& infos, size_t i,
                    int64_t bytes) {
  if (infos[i].part == WordPart::kHigh) {
    SlotInfo& slot = slots.list.back();
    const auto offset = static_cast<int64_t>(slot.bytes);
    slot.bytes += static_cast<uint64_t>(bytes);
    return {static_cast<int>(slots.list.size()) - 1, offset};
  }
  return {add_slot(slots, kind, bytes, parameter_number(infos, i), infos[i].name), 0};
}

void add_arguments(Slots& slots, const Function& main) {
  for (size_t i = 0; i < main.args.size(); ++i) {
    const Value* v = main.body.args[i].get();
    const SlotPlace place =
        add_place(slots, exe::SlotKind::argument, main.args, i, v->type.bytes());
    slots.homes.emplace_back(v, place);
  }
}

// A result that takes a donated argument's memory lies in its slot.
void add_results(Slots& slots, const Function& main) {
  const Op* ret = main.body.terminator();
  slots.results.resize(ret->operands.size());
  for (size_t i = 0; i < main.args.size(); ++i) {
    if (const int r = main.args[i].alias_result; r >= 0) {
      const auto& [argument, place] = slots.homes[i];
      slots.results[static_cast<size_t>(r)] = {place, argument};
    }
  }
  for (size_t i = 0; i < slots.results.size(); ++i) {
    if (slots.results[i].replaces == nullptr) {
      const int64_t bytes = ret->operands[i]->type.bytes();
      slots.results[i] = {add_place(slots, exe::SlotKind::result, main.results, i, bytes)};
    }
  }
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
      const int slot = add_slot(slots, exe::SlotKind::constant, v->type.bytes(), n,
                                "constant " + std::to_string(n));
      slots.homes.emplace_back(v, SlotPlace{slot, 0});
    }
  });
}

// A launch binds a limited number of arrays.
void check_count(const std::vector<SlotInfo>& slots) {
  if (slots.size() <= TPU_MAX_SLOTS) {
    return;
  }
  std::array<size_t, 4> of_kind{};
  for (const SlotInfo& slot : slots) {
    ++of_kind.at(static_cast<size_t>(slot.kind));
  }
  const auto count = [&](exe::SlotKind kind) {
    return std::to_string(of_kind.at(static_cast<size_t>(kind)));
  };
  throw HbmExhausted(
      "the program needs " + std::to_string(slots.size()) + " binding slots (" +
      count(exe::SlotKind::argument) + " arguments, " + count(exe::SlotKind::result) +
      " results that do not reuse a donated argument, " + count(exe::SlotKind::constant) +
      " constants, scratch), but a launch has at most " + std::to_string(TPU_MAX_SLOTS) +
      "; stack the arrays of equal layers and loop over them with jax.lax.scan, donate the arrays "
      "that the step replaces (donate_argnums), or concatenate small arrays");
}

}  // namespace

Slots make_slots(const Module& module, const KernelProgram& kernels, int64_t hbm_bytes) {
  Slots slots;
  const Function& main = *module.main;
  add_arguments(slots, main);
  add_results(slots, main);
  add_constants(slots, kernels);
  slots.scratch = add_slot(slots, exe::SlotKind::scratch, 0, 0, "scratch");
  check_count(slots.list);
  int64_t bytes = 0;
  for (const SlotInfo& s : slots.list) {
    bytes += static_cast<int64_t>(s.bytes);
  }
  if (bytes > hbm_bytes) {
    throw HbmExhausted("arguments, results and constants need " + std::to_string(bytes) +
                       " bytes of HBM, " + has_text(hbm_bytes) + ":\n" +
                       memory_report(slots.list, Scratch{}, {}));
  }
  return slots;
}

}  // namespace tpu::compiler
