#include "kernel/late_updates.hpp"

#include <algorithm>
#include <iterator>

#include "kernel/movable.hpp"

namespace tpu::compiler {
namespace {

using Place = std::list<Kernel>::iterator;

bool is_one_of(const std::vector<const Value*>& list, const Value* v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

// The array that the kernel replaces; null: none.
const Value* replaced_by(const Kernel& k) {
  const bool update = k.kind == KernelClass::kDynamicUpdate ||
                      (k.kind == KernelClass::kIndexed && k.ops[0]->kind == Kind::kIndexedWrite);
  return update ? k.reads[0] : nullptr;
}

// Both read an array that the loop carries, other than `old`: the second may be the one that
// replaces it.
bool share_carried(const Kernel& a, const Kernel& b, const Value* old) {
  return std::ranges::any_of(a.reads, [&](const Value* v) {
    return v != old && v->type.count() > 1 && is_carried(*v) && is_one_of(b.reads, v);
  });
}

// True if `reader` may run before the kernels from `update` on: it needs none of their results, and
// replaces nothing that they read.
bool may_pass(const Place& update, const Place& reader, const Value* old) {
  return has_commands_only(*reader) && std::none_of(update, reader, [&](const Kernel& k) {
           return share_carried(k, *reader, old) ||
                  std::ranges::any_of(k.writes,
                                      [&](const Value* v) { return is_one_of(reader->reads, v); });
         });
}

}  // namespace

void order_updates_late(KernelProgram& program) {
  bool moved = false;
  for (auto update = program.kernels.begin(); update != program.kernels.end(); ++update) {
    const Value* old = replaced_by(*update);
    if (old == nullptr || !is_carried(*old)) {
      continue;
    }
    for (auto k = std::next(update); k != program.kernels.end();) {
      const auto reader = k++;
      if (is_one_of(reader->reads, old) && may_pass(update, reader, old)) {
        program.kernels.splice(update, program.kernels, reader);
        moved = true;
      }
    }
  }
  if (moved) {
    renumber(program);
  }
}

}  // namespace tpu::compiler
