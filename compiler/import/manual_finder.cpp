// See manual_finder.hpp. An op that reads a value of a part belongs to the part, and joins the
// parts of all values that it reads. A collective that reads no shard belongs to the part that
// reads its result, with what is computed between them: in the program of all devices there are no
// values that differ from core to core.
#include "import/manual_finder.hpp"

#include <array>

#include "import/gspmd.hpp"
#include "ir/op_kinds.hpp"

namespace tpu::compiler::frontend {
namespace {

using bytecode::Dialect;
using bytecode::RawOp;

bool is_call(const RawOp& op) {
  return op.dialect == Dialect::kVhlo && base_name(op.name) == "call";
}

}  // namespace

ManualFinder::ManualFinder(const Tables& tables, const bytecode::RawRegion& region,
                           const CoreOps& core_ops)
    : tables_(tables), ops_(region.ops), joined_(ops_.size(), kNowhere) {
  learn(core_ops);
  find_own_ops();
  std::vector<size_t> exits;
  for (size_t at = 0; at < ops_.size(); ++at) {
    if (is_border(at, kGspmdLeave) &&
        (part_of(ops_[at].operands[0]) != kNowhere || !is_of_call(ops_[at].operands[0]))) {
      exits.push_back(at);
    }
    look_at(at);
  }
  for (size_t at = 0; at < ops_.size(); ++at) {
    if (joined_[at] != kNowhere) {
      ManualPart& part = parts_[root(at)];
      (is_border(at, kGspmdEnter) ? part.entries : part.ops).push_back(at);
    }
  }
  for (const size_t at : exits) {
    const size_t from = part_of(ops_[at].operands[0]);
    parts_[from == kNowhere ? at : root(from)].exits.push_back(at);
  }
}

void ManualFinder::learn(const CoreOps& core_ops) {
  users_.resize(ops_.size());
  for (size_t at = 0; at < ops_.size(); ++at) {
    const RawOp& op = ops_[at];
    each_use(op, [&](uint32_t value) {
      if (const size_t from = maker(value); from != kNowhere) {
        users_[from].push_back(at);
      }
    });
    copyable_.push_back(is_pure(op) && std::ranges::all_of(op.operands, [&](uint32_t v) {
                          return maker(v) != kNowhere && copyable_[maker(v)];
                        }));
    const bool border = is_border(at, kGspmdEnter) || is_border(at, kGspmdLeave);
    by_core_.push_back(!border && (core_ops.contains(op) || reads_any(at, by_core_)));
    for (const uint32_t result : op.results) {
      makers_[result] = at;
    }
  }
}

bool ManualFinder::is_pure(const RawOp& op) const {
  if (custom_call_target(tables_, op) == kGspmdConstraint && op.operands.size() == 1) {
    return tables_.text(tables_.entry(op.dictionary, "mhlo.sharding")) == "{manual}";
  }
  if (op.dialect != Dialect::kVhlo || !op.regions.empty()) {
    return false;
  }
  constexpr std::array kOthers = {Kind::kSend,       Kind::kRecv, Kind::kRng,
                                  Kind::kCustomCall, Kind::kCall, Kind::kComposite};
  const auto kind = kind_from_name(base_name(op.name));
  return !kind || (!is_collective(*kind) &&
                   std::find(kOthers.begin(), kOthers.end(), *kind) == kOthers.end());
}

bool ManualFinder::reads_any(size_t at, const std::vector<bool>& places) const {
  bool any = false;
  each_use(ops_[at], [&](uint32_t value) {
    const size_t from = maker(value);
    any = any || (from != kNowhere && places[from]);
  });
  return any;
}

// From the borders on to all ops that read a shard, and from these back to the values by core that
// they read. Copies of what can be copied are made later.
void ManualFinder::find_own_ops() {
  own_.resize(ops_.size());
  std::vector<bool> seen(ops_.size());
  std::vector<size_t> next;
  const auto see = [&](size_t at) {
    if (!seen[at]) {
      seen[at] = true;
      next.push_back(at);
    }
  };
  for (size_t at = 0; at < ops_.size(); ++at) {
    if (is_border(at, kGspmdEnter) ||
        (is_border(at, kGspmdLeave) && !is_of_call(ops_[at].operands[0]))) {
      see(at);
    }
  }
  while (!next.empty()) {
    const size_t at = next.back();
    next.pop_back();
    if (!is_border(at, kGspmdEnter)) {
      each_use(ops_[at], [&](uint32_t value) {
        const size_t from = maker(value);
        if (from != kNowhere && by_core_[from] && !copyable_[from]) {
          own_[from] = true;
          see(from);
        }
      });
    }
    if (!is_border(at, kGspmdLeave)) {
      std::ranges::for_each(users_[at], [&](size_t user) {
        if (!is_border(user, kGspmdEnter)) {
          see(user);
        }
      });
    }
  }
}

void ManualFinder::look_at(size_t at) {
  if (enters_or_leaves(at)) {
    return;
  }
  if (own_[at]) {
    joined_[at] = at;
  }
  join_with_uses(at);
}

bool ManualFinder::enters_or_leaves(size_t at) {
  if (!is_border(at, kGspmdEnter)) {
    return is_border(at, kGspmdLeave);
  }
  if (part_of(ops_[at].operands[0]) != kNowhere) {
    fail(ops_[at], "the operand is an array of one device already");
  }
  joined_[at] = at;
  entries_.push_back(at);
  return true;
}

bool ManualFinder::is_border(size_t at, std::string_view target_name) const {
  return target(at) == target_name && ops_[at].operands.size() == 1 && ops_[at].results.size() == 1;
}

void ManualFinder::join_with_uses(size_t at) {
  each_use(ops_[at], [&](uint32_t value) {
    const size_t other = part_of(value);
    if (other == kNowhere) {
      return;
    }
    if (at + 1 == ops_.size()) {
      fail(ops_[other],
           "an array of one device is a result of the program; SPMDShardToFullShape "
           "(xs.disable_manual_sharding) must make it an array of all devices first");
    }
    joined_[at] = joined_[at] == kNowhere ? at : joined_[at];
    joined_[root(other)] = root(at);
  });
}

// An exit gives an array of all devices.
size_t ManualFinder::part_of(uint32_t value) const {
  const size_t at = maker(value);
  return at == kNowhere || joined_[at] == kNowhere ? kNowhere : at;
}

size_t ManualFinder::maker(uint32_t value) const {
  const auto it = makers_.find(value);
  return it == makers_.end() ? kNowhere : it->second;
}

size_t ManualFinder::root(size_t at) {
  while (joined_[at] != at) {
    at = joined_[at] = joined_[joined_[at]];
  }
  return at;
}

std::string_view ManualFinder::target(size_t at) const {
  return custom_call_target(tables_, ops_[at]);
}

bool ManualFinder::is_made_by(uint32_t value, std::string_view target_name) const {
  const size_t at = maker(value);
  return at != kNowhere && target(at) == target_name;
}

// The result of a call, or of the `Sharding` behind it.
bool ManualFinder::is_of_call(uint32_t value) const {
  size_t at = maker(value);
  if (at != kNowhere && target(at) == kGspmdConstraint && ops_[at].operands.size() == 1) {
    at = maker(ops_[at].operands[0]);
  }
  return at != kNowhere && is_call(ops_[at]);
}

// The form of jax.shard_map: calls of entries, whose results leave at once.
bool ManualFinder::is_call_form(const ManualPart& part) const {
  return std::ranges::all_of(part.ops, [&](size_t at) { return fits_call_form(at); }) &&
         std::ranges::all_of(part.exits,
                             [&](size_t at) { return is_of_call(ops_[at].operands[0]); });
}

bool ManualFinder::fits_call_form(size_t at) const {
  const RawOp& op = ops_[at];
  if (is_call(op)) {
    return std::ranges::all_of(op.operands, [&](uint32_t v) {
      return part_of(v) == kNowhere || is_made_by(v, kGspmdEnter);
    });
  }
  return target(at) == kGspmdConstraint && op.operands.size() == 1 && is_of_call(op.operands[0]);
}

std::vector<ManualPart> ManualFinder::parts() const {
  std::vector<ManualPart> found;
  for (const auto& [root, part] : parts_) {
    if (!is_call_form(part)) {
      found.push_back(part);
    }
  }
  return found;
}

std::vector<size_t> ManualFinder::bare_entries() const {
  std::vector<size_t> bare;
  std::ranges::copy_if(entries_, std::back_inserter(bare), [&](size_t at) {
    return !is_made_by(ops_[at].operands[0], kGspmdConstraint);
  });
  return bare;
}

void ManualFinder::fail(const RawOp& op, const std::string& message) const {
  throw Error(message, display_name(op), Tables(tables_.raw()).loc(op.loc));
}

}  // namespace tpu::compiler::frontend
