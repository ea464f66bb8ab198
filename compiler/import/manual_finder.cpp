// See manual_finder.hpp. An op that reads a value of a part belongs to the part, and joins the
// parts of all values that it reads.
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

bool is_pure(const RawOp& op) {
  if (op.dialect != Dialect::kVhlo || !op.regions.empty()) {
    return false;
  }
  constexpr std::array kOthers = {Kind::kSend,       Kind::kRecv, Kind::kRng,
                                  Kind::kCustomCall, Kind::kCall, Kind::kComposite};
  const auto kind = kind_from_name(base_name(op.name));
  return !kind || (!is_collective(*kind) &&
                   std::find(kOthers.begin(), kOthers.end(), *kind) == kOthers.end());
}

}  // namespace

ManualFinder::ManualFinder(const Tables& tables, const bytecode::RawRegion& region)
    : tables_(tables), ops_(region.ops), joined_(ops_.size(), kNowhere) {
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

void ManualFinder::look_at(size_t at) {
  const RawOp& op = ops_[at];
  if (!enters_or_leaves(at)) {
    join_with_uses(at);
  }
  for (const uint32_t result : op.results) {
    makers_[result] = at;
  }
  copyable_.push_back(is_pure(op) && std::ranges::all_of(op.operands, [&](uint32_t v) {
                        return maker(v) != kNowhere && copyable_[maker(v)];
                      }));
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
