#include "passes/rematerialise.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/op_traits.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kLeastBytes = int64_t{1} << 18;
constexpr size_t kMostOps = 32;     // computed again for one value: one loop kernel holds them
constexpr int64_t kSmallPart = 16;  // what is made of this part of a value's bytes may be kept
constexpr int64_t kMargin = 8;      // part of the excess: temporaries leave gaps between them
constexpr int64_t kLeastMargin = int64_t{1} << 20;

bool is_view(const Op* op) { return op != nullptr && has_trait(op->kind, trait::kView); }

bool is_anywhere(const Op* op) {
  return op->kind == Kind::kConstant || op->kind == Kind::kIota || op->kind == Kind::kPartitionId ||
         op->kind == Kind::kReplicaId;
}

bool is_placed_early(const Op& op) {
  return is_elementwise(op.kind) || op.kind == Kind::kReduce || is_view(&op) || is_anywhere(&op);
}

// A value and how it is computed again.
struct Again {
  const Value* value = nullptr;
  std::vector<const Op*> ops = {};  // without views, which `views` has
  std::vector<const Op*> views = {};
  std::vector<const Value*> leaves = {};  // what they read, views aside
  const Value* source = nullptr;          // one of these, which is not kept yet
  std::vector<Op*> readers = {};          // that come late
  size_t first = 0;                       // place of the first of them
};

class Rematerialiser {
 public:
  Rematerialiser(Module& module, const MemoryPeak& peak)
      : module_(module), body_(module.main->body), uses_(compute_uses(body_)) {
    const std::unordered_set<const Value*> alive(peak.alive.begin(), peak.alive.end());
    // Element-by-element ops and reductions are computed as early as they can, wherever the program
    // has them: they say nothing of the time of the peak.
    const auto look_at = [&](const Op& op, size_t at) {
      place_[&op] = at;
      for (const auto& result : op.results) {
        if (alive.contains(result.get())) {
          alive_.insert(result.get());
          peak_ = is_placed_early(op) ? peak_ : at;
        }
      }
    };
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      look_at(*body_.ops[i], i);
      for (const auto& region : body_.ops[i]->regions) {
        walk(*region, [&](const Op& inner) { look_at(inner, i); });
      }
    }
    find_last_places();
    for (size_t i = 0; i < body_.args.size(); ++i) {
      const ArgInfo& info = module.main->args[i];
      if (info.alias_result >= 0 || info.donated) {
        replaced_.insert(body_.args[i].get());
      }
    }
  }

  int64_t run(int64_t excess) {
    const int64_t wanted = excess + std::max(excess / kMargin, kLeastMargin);
    std::vector<Again> chosen;
    int64_t bytes = 0;
    const auto choose = [&](Again again) {
      bytes += again.value->type.bytes();
      gone_.insert(again.value);
      needed_.insert(again.leaves.begin(), again.leaves.end());
      chosen.push_back(std::move(again));
    };
    const std::vector<const Value*> all = candidates();
    for (const Value* v : all) {
      if (bytes >= wanted) {
        break;
      }
      if (auto again = way_of(v); again && again->source == nullptr) {
        choose(std::move(*again));
      }
    }
    for (const auto& [source, values] : by_source(all)) {
      if (bytes >= wanted) {
        break;
      }
      const auto gone = gone_, needed = needed_;
      const size_t count = chosen.size();
      const int64_t before = bytes;
      bytes -= alive_.contains(source) ? 0 : source->type.bytes();
      for (const Value* v : values) {
        if (auto again = way_of(v); again && again->source == source) {
          choose(std::move(*again));
        }
      }
      if (bytes > before) {
        kept_.insert(source);
        continue;
      }
      bytes = before;
      chosen.resize(count);
      gone_ = gone;
      needed_ = needed;
    }
    insert(chosen);
    return bytes;
  }

 private:
  // The largest first, and of equal ones the earliest, which are kept longest.
  std::vector<const Value*> candidates() const {
    std::vector<const Value*> found;
    for (const auto& op : body_.ops) {
      if (is_elementwise(op->kind) && alive_.contains(op->result()) &&
          op->type().bytes() >= kLeastBytes) {
        found.push_back(op->result());
      }
    }
    std::ranges::stable_sort(found, std::ranges::greater{},
                             [](const Value* v) { return v->type.bytes(); });
    return found;
  }

  // Values that can be computed again once one more value is kept, such as GELU and its derivative,
  // of a product; in the order of the candidates.
  std::vector<std::pair<const Value*, std::vector<const Value*>>> by_source(
      const std::vector<const Value*>& all) const {
    std::vector<std::pair<const Value*, std::vector<const Value*>>> found;
    for (const Value* v : all) {
      const auto again = gone_.contains(v) ? std::nullopt : way_of(v);
      if (!again || again->source == nullptr) {
        continue;
      }
      const auto known = std::ranges::find_if(
          found, [&](const auto& entry) { return entry.first == again->source; });
      if (known != found.end()) {
        known->second.push_back(v);
      } else {
        found.push_back({again->source, {v}});
      }
    }
    return found;
  }

  size_t place(const Op* op) const { return place_.at(op); }

  // Calls fn(result) for the views of `v` that the op has: those of a barrier are of one operand
  // each.
  template <typename Fn>
  static void for_each_view(const Op& view, const Value* v, const Fn& fn) {
    for (size_t i = 0; i < view.results.size(); ++i) {
      if (view.operands[i] == v) {
        fn(view.result(i));
      }
    }
  }

  // An op in front of the peak whose value is not kept: it is computed where its readers are, and
  // so its operands are read there.
  bool is_passed(const Op& user) const {
    return user.parent == &body_ && is_elementwise(user.kind) && place(&user) <= peak_ &&
           !alive_.contains(user.result()) && last_.at(user.result()) > peak_;
  }

  // Calls fn(user) for all that read the value or a view of it; `views`: those on the way.
  template <typename Fn>
  void for_each_reader(const Value* v, std::vector<const Op*>& views, const Fn& fn) const {
    const auto users = uses_.find(v);
    if (users == uses_.end()) {
      return;
    }
    for (Op* user : users->second) {
      if (!is_view(user) || user->parent != &body_) {
        fn(user);
        continue;
      }
      if (std::ranges::find(views, user) == views.end()) {
        views.push_back(user);
      }
      for_each_view(*user, v, [&](const Value* view) { for_each_reader(view, views, fn); });
    }
  }

  // Element-by-element ops may be computed for a later reader alone, which reads their operands.
  void find_last_places() {
    for (auto op = body_.ops.rbegin(); op != body_.ops.rend(); ++op) {
      for (const auto& result : (*op)->results) {
        size_t& last = last_[result.get()];
        const auto users = uses_.find(result.get());
        if (users == uses_.end()) {
          continue;
        }
        for (const Op* user : users->second) {
          last = std::max(last, last_of(*user, result.get()));
        }
      }
    }
  }

  size_t last_of(const Op& user, const Value* v) const {
    size_t last = place(&user);
    if (user.parent == &body_ && is_view(&user)) {
      for_each_view(user, v, [&](const Value* view) { last = std::max(last, last_.at(view)); });
    } else if (user.parent == &body_ && is_elementwise(user.kind)) {
      last = std::max(last, last_.at(user.result()));
    }
    return last;
  }

  size_t last_place(const Value* v) const {
    const auto last = last_.find(v);
    return last == last_.end() ? 0 : last->second;
  }

  // Nothing if the value must be kept, or cannot be computed again from what is alive.
  std::optional<Again> way_of(const Value* v) const {
    if (needed_.contains(v)) {
      return std::nullopt;
    }
    auto again = way_of(v, /*with_passed=*/true);
    return again ? again : way_of(v, /*with_passed=*/false);
  }

  // `with_passed`: as ops in front of the peak are computed late, they are computed again, too.
  std::optional<Again> way_of(const Value* v, bool with_passed) const {
    Again again{.value = v, .first = body_.ops.size()};
    bool is_result = false;
    std::vector<const Value*> read = {v};  // and those of ops that are passed
    for (size_t i = 0; i < read.size(); ++i) {
      for_each_reader(read[i], again.views, [&](Op* user) {
        is_result = is_result || user == body_.terminator();
        if (place(user) > peak_) {
          again.readers.push_back(user);
          again.first = std::min(again.first, place(user));
        } else if (with_passed && is_passed(*user) &&
                   std::ranges::find(read, user->result()) == read.end()) {
          read.push_back(user->result());
        }
      });
    }
    const bool possible =
        !is_result && !again.readers.empty() &&
        std::ranges::all_of(read, [&](const Value* made) { return compute(made, again); });
    return possible ? std::optional(std::move(again)) : std::nullopt;
  }

  // Adds what computes `v` again. False: impossible.
  bool compute(const Value* v, Again& again) const {
    const Op* op = v->def;
    if (std::ranges::find(again.ops, op) != again.ops.end()) {
      return true;
    }
    if (!is_elementwise(op->kind) || op->parent != &body_ || again.ops.size() == kMostOps) {
      return false;
    }
    again.ops.push_back(op);
    return std::ranges::all_of(op->operands, [&](const Value* operand) {
      const Value* root = operand;
      while (is_view(root->def)) {
        if (std::ranges::find(again.views, root->def) == again.views.end()) {
          again.views.push_back(root->def);
        }
        root = root->def->operands[static_cast<size_t>(root->index)];
      }
      return is_there(root, again) ||
             (root->def != nullptr && (compute(root, again) || is_source(root, again)));
    });
  }

  // What could be kept: one value.
  static bool is_source(const Value* root, Again& again) {
    if (again.source == nullptr && !is_elementwise(root->def->kind)) {
      again.source = root;
      again.leaves.push_back(root);
    }
    return again.source == root;
  }

  // A constant, or what is alive until the late readers come, or little.
  bool is_there(const Value* root, Again& again) const {
    if (root->def != nullptr && is_anywhere(root->def)) {
      return true;
    }
    if (replaced_.contains(root)) {
      return false;  // another value may be there by then
    }
    const bool kept = root->def == nullptr || kept_.contains(root) ||
                      (alive_.contains(root) && !gone_.contains(root) && root != again.value &&
                       last_place(root) >= again.first);
    const bool small = root->type.bytes() * kSmallPart <= again.value->type.bytes();
    if (!kept && !small) {
      return false;
    }
    again.leaves.push_back(root);
    return true;
  }

  // The new ops go right in front of the first late reader.
  void insert(const std::vector<Again>& chosen) {
    std::map<size_t, std::vector<std::unique_ptr<Op>>> made;
    std::vector<std::pair<Op*, int>> groups;
    Region scratch;
    for (const Again& again : chosen) {
      const int group = module_.late_groups++;
      for (auto& op : copies(again, scratch)) {
        groups.emplace_back(op.get(), group);
        made[again.first].push_back(std::move(op));
      }
    }
    std::vector<std::unique_ptr<Op>> ops;
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (const auto here = made.find(i); here != made.end()) {
        std::ranges::move(here->second, std::back_inserter(ops));
      }
      ops.push_back(std::move(body_.ops[i]));
    }
    body_.ops = std::move(ops);
    drop_unused(chosen);
    module_.number_ops();
    for (const auto& [op, group] : groups) {
      module_.late[op->id] = group;
    }
  }

  // What is read late only is computed late only.
  void drop_unused(const std::vector<Again>& chosen) {
    std::unordered_set<const Op*> copied;
    for (const Again& again : chosen) {
      copied.insert(again.ops.begin(), again.ops.end());
      copied.insert(again.views.begin(), again.views.end());
    }
    std::unordered_map<const Value*, size_t> readers;
    for (const auto& [value, users] : compute_uses(body_)) {
      readers[value] = users.size();
    }
    std::unordered_set<const Op*> unused;
    for (auto at = body_.ops.rbegin(); at != body_.ops.rend(); ++at) {
      const Op& op = **at;
      if (copied.contains(&op) && std::ranges::all_of(op.results, [&](const auto& result) {
            return readers[result.get()] == 0;
          })) {
        unused.insert(&op);
        std::ranges::for_each(op.operands, [&](const Value* v) { --readers[v]; });
      }
    }
    std::erase_if(body_.ops, [&](const auto& op) { return unused.contains(op.get()); });
  }

  std::vector<std::unique_ptr<Op>> copies(const Again& again, Region& scratch) {
    std::vector<const Op*> ops = again.ops;
    ops.insert(ops.end(), again.views.begin(), again.views.end());
    std::ranges::sort(ops, {}, [&](const Op* op) { return place(op); });
    ValueMap map;
    for (const Op* op : ops) {
      clone_op(*op, scratch, map)->parent = &body_;
    }
    for (Op* reader : again.readers) {
      reader->operands = mapped(reader->operands, map);
    }
    return std::exchange(scratch.ops, {});
  }

  Module& module_;
  Region& body_;
  const Uses uses_;
  std::unordered_map<const Op*, size_t> place_;    // in the body of main, of inner ops too
  std::unordered_map<const Value*, size_t> last_;  // place of the last reader
  std::unordered_set<const Value*> alive_, replaced_;
  std::unordered_set<const Value*> gone_, needed_, kept_;  // by what has been chosen
  size_t peak_ = 0;
};

}  // namespace

int64_t rematerialise(Module& module, const MemoryPeak& peak) {
  return Rematerialiser(module, peak).run(peak.excess);
}

}  // namespace tpu::compiler
