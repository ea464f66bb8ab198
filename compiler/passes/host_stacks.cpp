#include "passes/host_stacks.hpp"

#include <algorithm>
#include <functional>

#include "ir/control.hpp"
#include "ir/counter_values.hpp"
#include "passes/dce.hpp"
#include "passes/rewriter.hpp"

namespace tpu::compiler {
namespace {

// An entry that a loop writes: `array` is placed by `put` and becomes entry `index` of the stack.
struct Entry {
  Op* update = nullptr;
  Value* array = nullptr;
  Value* index = nullptr;
};

// One that another loop reads: the result of `get` is entry `index`.
struct Reading {
  Op* get = nullptr;
  Value* index = nullptr;
};

class HostStacks {
 public:
  HostStacks(Module& module, int64_t& next_channel)
      : main_(*module.main), uses_(compute_uses(main_.body)), next_channel_(next_channel) {}

  // True if a stack was found.
  bool run() {
    std::vector<Op*> loops;
    walk(main_.body, [&](Op& op) {
      if (op.kind == Kind::kWhile) {
        loops.push_back(&op);
      }
    });
    bool any = false;
    for (Op* loop : loops) {
      for (size_t k = 0; k < loop->results.size(); ++k) {
        any = keep(*loop, k) || any;
      }
    }
    return any;
  }

 private:
  const std::vector<Op*>& users(const Value* v) const {
    static const std::vector<Op*> none;
    const auto found = uses_.find(v);
    return found == uses_.end() ? none : found->second;
  }
  bool only_user(const Value* v, const Op* op) const {
    return users(v).size() == 1 && users(v)[0] == op;
  }

  bool keep(Op& loop, size_t k) {
    const std::optional<Entry> entry = entry_of(loop, k);
    std::vector<Reading> readings;
    if (!entry || !writes_all(loop, loop.type(k).dims[0], entry->index) ||
        entry->array->type.bytes() > kMostTransferBytes || !is_empty(loop.operands[k]) ||
        !find_readings(loop.result(k), readings) || readings.empty()) {
      return false;
    }
    const int64_t channel = next_channel_++;
    const int64_t entries = loop.type(k).dims[0];
    Region& body = *loop.regions[1];
    std::vector<std::unique_ptr<Op>> made =
        transfer(Kind::kSend, *entry->update, entry->index, entries, channel, entry->array);
    put_in(body, *entry->update, std::move(made));
    body.terminator()->operands[k] = body.args[k].get();
    for (const Reading& reading : readings) {
      made = transfer(Kind::kRecv, *reading.get, reading.index, entries, channel, nullptr);
      Value* got = made.back()->result();
      Region& region = *reading.get->parent;
      put_in(region, *reading.get, std::move(made));
      replace_all_uses(region, reading.get->result(), got);
    }
    return true;
  }

  // True if the iterations of the loop write each entry: the host has none that nobody wrote.
  static bool writes_all(const Op& loop, int64_t entries, const Value* index) {
    const auto counted = counted_loop(loop);
    const auto places = counted ? values_in_loop(index, loop, *counted) : std::nullopt;
    if (!places) {
      return false;
    }
    std::vector<bool> written(static_cast<size_t>(entries), false);
    for (const int64_t place : *places) {
      written[static_cast<size_t>(std::clamp<int64_t>(place, 0, entries - 1))] = true;
    }
    return std::ranges::all_of(written, std::identity{});
  }

  // What fills a stack has zeros around it.
  static bool is_empty(const Value* v) {
    return is_zero(v) || (v->def != nullptr && v->def->kind == Kind::kBroadcastInDim &&
                          is_zero(v->def->operands[0]));
  }

  // The index, if the part is one whole entry of the array.
  static Value* entry_index(const Type& array, const Dims& part, const Op& op, size_t starts) {
    if (array.dims.empty() || part.empty() || part[0] != 1 ||
        !std::equal(part.begin() + 1, part.end(), array.dims.begin() + 1, array.dims.end()) ||
        elem_bytes(op.operand_type(starts).elem) < 4) {
      return nullptr;
    }
    for (size_t d = 1; d < part.size(); ++d) {
      if (!is_zero(op.operands[starts + d])) {
        return nullptr;
      }
    }
    return op.operands[starts];
  }

  static bool is_view(const Op& op) {
    return (op.kind == Kind::kReshape || op.kind == Kind::kBroadcastInDim) &&
           op.type().count() == op.operand_type(0).count();
  }

  std::optional<Entry> entry_of(const Op& loop, size_t k) const {
    const Region& body = *loop.regions[1];
    const Value* carried = body.args[k].get();
    const Value* next = body.terminator()->operands[k];
    Op* update = next->def;
    if (update == nullptr || update->kind != Kind::kDynamicUpdateSlice || update->parent != &body ||
        update->operands[0] != carried || !only_user(carried, update) ||
        !only_user(next, body.terminator()) || !users(loop.regions[0]->args[k].get()).empty()) {
      return std::nullopt;
    }
    Value* index = entry_index(next->type, update->operand_type(1).dims, *update, 2);
    const Value* part = update->operands[1];
    const Op* user = update;
    while (part->def != nullptr && is_view(*part->def) && only_user(part, user)) {
      user = part->def;
      part = user->operands[0];
    }
    const auto kind = placement(part->def);
    if (index == nullptr || !kind || *kind == MemoryKind::kDevice || !only_user(part, user)) {
      return std::nullopt;
    }
    return Entry{update, part->def->operands[0], index};
  }

  // False: somebody reads the stack otherwise than entry by entry into device memory.
  bool find_readings(const Value* stack, std::vector<Reading>& readings) const {
    return std::ranges::all_of(users(stack), [&](const Op* user) {
      for (size_t m = 0; m < user->operands.size(); ++m) {
        if (user->operands[m] != stack) {
          continue;
        }
        const bool fits = user->kind == Kind::kOptimizationBarrier
                              ? find_readings(user->result(m), readings)
                              : user->kind == Kind::kWhile && reads_entries(*user, m, readings);
        if (!fits) {
          return false;
        }
      }
      return true;
    });
  }

  bool reads_entries(const Op& loop, size_t m, std::vector<Reading>& readings) const {
    const Region& body = *loop.regions[1];
    const Value* stack = body.args[m].get();
    if (body.terminator()->operands[m] != stack || !users(loop.result(m)).empty() ||
        !users(loop.regions[0]->args[m].get()).empty()) {
      return false;
    }
    return std::ranges::all_of(users(stack), [&](Op* user) {
      if (user == body.terminator()) {
        return std::ranges::count(user->operands, stack) == 1;
      }
      if (user->kind != Kind::kDynamicSlice || user->operands[0] != stack) {
        return false;
      }
      Value* index = entry_index(stack->type, user->type().dims, *user, 1);
      return index != nullptr && brings_back(user->result(), index, readings);
    });
  }

  bool brings_back(const Value* v, Value* index, std::vector<Reading>& readings) const {
    return std::ranges::all_of(users(v), [&](Op* user) {
      if (placement(user) == MemoryKind::kDevice) {
        readings.push_back({user, index});
        return true;
      }
      if (user->kind == Kind::kOptimizationBarrier) {
        for (size_t i = 0; i < user->operands.size(); ++i) {
          if (user->operands[i] == v && !brings_back(user->result(i), index, readings)) {
            return false;
          }
        }
        return true;
      }
      return is_view(*user) && brings_back(user->result(), index, readings);
    });
  }

  // Ops in front of `at`: the index, as a dynamic slice or update bounds it, then the entry.
  static std::vector<std::unique_ptr<Op>> transfer(Kind kind, const Op& at, Value* index,
                                                   int64_t entries, int64_t channel, Value* sent) {
    Region made;
    const Type scalar = index->type;
    const auto number = [&](int64_t n) {
      return made
          .append(Kind::kConstant, {}, {scalar}, ConstantAttrs{make_splat_int(scalar, n)}, at.loc)
          ->result();
    };
    Value* first = number(0);
    Value* last = number(entries - 1);
    Value* bounded =
        made.append(Kind::kClamp, {first, index, last}, {scalar}, NoAttrs{}, at.loc)->result();
    HostAttrs attrs{channel, -1, scalar, true, true};
    made.append(Kind::kSend, {bounded}, {}, attrs, at.loc);
    attrs.index = false;
    if (kind == Kind::kSend) {
      attrs.array = sent->type;
      made.append(kind, {sent}, {}, attrs, at.loc);
    } else {
      attrs.array = at.type();
      made.append(kind, {}, {at.type()}, attrs, at.loc);
    }
    return std::move(made.ops);
  }

  static void put_in(Region& region, const Op& at, std::vector<std::unique_ptr<Op>> made) {
    for (auto& op : made) {
      op->parent = &region;
    }
    const auto place =
        std::ranges::find_if(region.ops, [&](const auto& op) { return &*op == &at; });
    region.ops.insert(place, std::make_move_iterator(made.begin()),
                      std::make_move_iterator(made.end()));
  }

  Function& main_;
  const Uses uses_;
  int64_t& next_channel_;
};

// What a barrier holds for nobody keeps an array alive.
void drop_unread_parts_of_barriers(Region& region) {
  const Uses uses = compute_uses(region);
  walk(region, [&](Op& op) {
    if (op.kind != Kind::kOptimizationBarrier) {
      return;
    }
    size_t kept = 0;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (!uses.contains(op.result(i))) {
        continue;
      }
      op.operands[kept] = op.operands[i];
      std::swap(op.results[kept], op.results[i]);
      op.results[kept]->index = static_cast<int>(kept);
      ++kept;
    }
    op.operands.resize(kept);
    op.results.resize(kept);
  });
}

}  // namespace

std::optional<MemoryKind> placement(const Op* op) {
  if (op == nullptr || op->kind != Kind::kCustomCall ||
      op->as<CustomCallAttrs>().target != kPlacementTarget) {
    return std::nullopt;
  }
  return memory_kind_of(op->as<CustomCallAttrs>().backend_config);
}

void keep_stacks_in_host_memory(Module& module, int64_t& next_channel) {
  if (HostStacks(module, next_channel).run()) {
    remove_dead_ops(module);
    drop_unread_parts_of_barriers(module.main->body);
    remove_dead_ops(module);
  }
}

}  // namespace tpu::compiler
