// GSPMD's language of shardings, for artifacts that were exported without Shardy: strings such as
// "{devices=[4,1,2]<=[8] last_tile_dim_replicate}" in the attribute `mhlo.sharding`, and custom
// calls. Private to the import.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "import/atoms.hpp"
#include "import/attr_reader.hpp"
#include "ir/attrs.hpp"

namespace tpu::compiler::frontend {

// What a string says of one array.
struct GspmdSharding {
  ShardingAttrs attrs;
  bool manual = false;           // the array is one core's own, along all axes
  std::vector<int> manual_axes;  // or along these
  bool unknown = false;          // the string leaves the sharding open
};

// Of an array of `rank` dimensions in a program of `cores`. What cuts adds to `atoms`. Throws Error
// without a place.
GspmdSharding read_gspmd(std::string_view text, size_t rank, int64_t cores, MeshAtoms& atoms);

// The devices in their order, unless the program has said its mesh.
void adopt_devices(int64_t cores, MeshAtoms& atoms);

// N of "{maximal device=N}"; nothing: the string says something else.
std::optional<int64_t> gspmd_device(std::string_view text);

// The targets of the custom calls.
inline constexpr std::string_view kGspmdConstraint = "Sharding",
                                  kGspmdEnter = "SPMDFullToShardShape",
                                  kGspmdLeave = "SPMDShardToFullShape";

// jax.shard_map as GSPMD has it: SPMDFullToShardShape in front of each operand of a call,
// SPMDShardToFullShape behind its results, with the shardings in `Sharding` around them.
class GspmdShardMaps {
 public:
  GspmdShardMaps(const Tables& tables, const bytecode::RawOp& module);

  // The op that makes the value an operand of a body; null: none does.
  const bytecode::RawOp* entry(uint32_t value) const;
  // The ops that make a result of a body an array again.
  std::vector<const bytecode::RawOp*> exits(uint32_t value) const;
  // The `Sharding` in front of an entry; null: there is none.
  const bytecode::RawOp* sharding_of(const bytecode::RawOp& entry) const;
  // True of a `Sharding` that belongs to an entry or exit.
  bool belongs(const bytecode::RawOp& sharding) const { return belongs_.contains(&sharding); }
  // And that nothing else reads.
  bool belongs_alone(const bytecode::RawOp& sharding) const;

 private:
  void scan(const Tables& tables, const bytecode::RawRegion& region);

  std::map<uint32_t, const bytecode::RawOp*> constraints_, entries_;  // by result
  std::map<uint32_t, std::vector<const bytecode::RawOp*>> exits_;     // by result of the body
  std::set<const bytecode::RawOp*> belongs_;
  std::unordered_map<uint32_t, size_t> readers_;  // by value: those that are no border
};

// Target of a custom call, "" of other ops.
std::string_view custom_call_target(const Tables& tables, const bytecode::RawOp& op);

}  // namespace tpu::compiler::frontend
