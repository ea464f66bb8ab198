// The manual parts of one region (manual_parts.hpp): which ops lie between SPMDFullToShardShape and
// SPMDShardToFullShape. Private to the import.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "import/attr_reader.hpp"
#include "import/bytecode.hpp"
#include "import/core_ops.hpp"

namespace tpu::compiler::frontend {

constexpr size_t kNowhere = static_cast<size_t>(-1);

// Ops by their places in the region.
struct ManualPart {
  std::vector<size_t> entries, ops, exits;

  size_t first() const { return ops.empty() ? exits.at(0) : ops.front(); }
  size_t place() const { return ops.empty() ? exits.at(0) : ops.back(); }
};

// Calls fn(value) for the values that the op reads, those of its regions included.
template <typename Op, typename Fn>
void each_use(Op& op, const Fn& fn) {
  std::ranges::for_each(op.operands, fn);
  for (auto& region : op.regions) {
    for (auto& inner : region.ops) {
      each_use(inner, fn);
    }
  }
}

class ManualFinder {
 public:
  // Throws Error where a value of one device is a result of the region.
  ManualFinder(const Tables& tables, const bytecode::RawRegion& region, const CoreOps& core_ops);

  // Parts that are no function yet.
  std::vector<ManualPart> parts() const;
  // SPMDFullToShardShape without a `Sharding` in front.
  std::vector<size_t> bare_entries() const;

  size_t maker(uint32_t value) const;  // place of the op; kNowhere: none of the region
  // The op gives the same result wherever it is computed, and so do those of its operands.
  bool is_copyable(size_t at) const { return copyable_[at]; }

 private:
  void learn(const CoreOps& core_ops);
  bool is_pure(const bytecode::RawOp& op) const;
  bool reads_any(size_t at, const std::vector<bool>& places) const;
  void find_own_ops();
  void look_at(size_t at);
  bool enters_or_leaves(size_t at);
  bool is_border(size_t at, std::string_view target) const;
  void join_with_uses(size_t at);
  size_t part_of(uint32_t value) const;
  size_t root(size_t at);
  bool is_made_by(uint32_t value, std::string_view target) const;
  bool is_of_call(uint32_t value) const;
  bool fits_call_form(size_t at) const;
  bool is_call_form(const ManualPart& part) const;
  std::string_view target(size_t at) const;
  [[noreturn]] void fail(const bytecode::RawOp& op, const std::string& message) const;

  const Tables& tables_;
  const std::vector<bytecode::RawOp>& ops_;
  std::unordered_map<uint32_t, size_t> makers_;  // by value
  std::vector<size_t> joined_;                   // union-find over places; kNowhere: in no part
  std::vector<bool> copyable_;
  std::vector<bool> by_core_;               // the results differ from core to core
  std::vector<bool> own_;                   // read no shard, but belong to the part that reads them
  std::vector<std::vector<size_t>> users_;  // by place
  std::vector<size_t> entries_;
  std::map<size_t, ManualPart> parts_;  // by root
};

}  // namespace tpu::compiler::frontend
