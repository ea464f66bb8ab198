// The converter from raw VHLO ops to graph ops. Its parts: normalise.cpp (ops, regions, functions),
// normalise_main.cpp (arguments and results of main), normalise_shard_map.cpp (jax.shard_map and
// what stands around it). Private to the import; see normalise.hpp for the entry.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "import/attr_reader.hpp"
#include "import/op_attrs.hpp"
#include "import/sharding.hpp"

namespace tpu::compiler::frontend {

using bytecode::RawOp;
using bytecode::RawRegion;

// Calls in each other. Walks over the calls of a checked artifact recurse no deeper.
constexpr int kMaxCallDepth = 64;

constexpr const char* kShardMapInControl =
    "jax.shard_map inside of a loop, a branch or another jax.shard_map is not supported; put the "
    "loop or "
    "branch inside of the shard_map";

class Normaliser {
 public:
  Normaliser(const bytecode::RawModule& raw, const std::string& name)
      : raw_(raw), tables_(raw), shardings_(tables_), values_(raw.num_values, nullptr) {
    out_.name = name;
  }

  Module run();

 private:
  // What is known of a value outside of shard_map, by value number. Arguments start undecided.
  struct Layout {
    bool decided = false;
    Sharding sharding;
    Type global;
    int argument = -1;
  };

  OpReader open(const RawOp& op) {
    return {tables_, op, display_name(op), nested_loc(outer_loc_, tables_.loc(op.loc))};
  }

  void core_counts();

  // call_nesting.cpp: refuses recursion and what lies too deep in calls and regions.
  struct CallNode;
  void check_calls();
  void follow_calls(const RawOp& function, std::map<const RawOp*, CallNode>& nodes);
  const RawOp* referred_function(const RawOp& op) const;  // of a call or composite
  [[noreturn]] void fail_recursion(const RawOp& call, const std::string& callee,
                                   const std::string& through);
  [[noreturn]] void fail_depth(const RawOp& call, bool regions);
  void check_mesh() const;

  // True if the op's regions hold a shard_map, directly or in a called function.
  bool contains_manual(const RawOp& op);
  const RawOp* called_function(const RawOp& op) const;

  // Where the function is called, with a source line if any chain of callers has one; null if it is
  // not called.
  LocRef caller_loc(const RawOp& callee);
  LocRef caller_loc(const RawOp& callee, std::set<const RawOp*>& seen);
  const RawOp* call_of(const RawOp& callee, const RawOp& within) const;
  static const RawRegion& body_of(const RawOp& op, const OpReader& reader);
  void convert_main(const RawOp& op);

  // Arguments have no place in the source: an error names the first op that uses the argument.
  Type arg_type(const OpReader& reader, const RawRegion& body, size_t i);

  // First op with a source line that uses the value; casts and calls are looked through. `seen`:
  // arguments of functions that are looked at already.
  const RawOp* first_use(const RawRegion& region, uint32_t value, std::set<uint32_t>& seen);
  [[noreturn]] void fail_argument(const OpReader& reader, const RawRegion& body, size_t i,
                                  const std::string& message);
  std::string argument_text(const RawRegion& body, size_t i);  // "argument 2 ('w')"
  void read_gspmd_sharding(const OpReader& reader, const RawRegion& body, size_t i,
                           uint32_t dictionary, Layout& layout);
  void read_arg_attrs(const OpReader& reader, uint32_t dictionary, ArgInfo& info, Layout& layout);

  // Results of main: global types, shardings, names, and the graph's return.
  void finish_results(const OpReader& reader, const RawOp& ret, Function& f);

  // A donated argument without a fixed result takes the first free result of the same type and
  // sharding.
  static void assign_donations(Function& f);
  void convert_function(const RawOp& op);
  void convert_ops(const RawRegion& region, Region& to);
  Value* operand(const OpReader& reader, size_t i) const;
  std::vector<Value*> operands(const OpReader& reader) const;
  void convert_op(const RawOp& op, Region& to);
  void identity(const OpReader& reader);

  // Arguments reach ops through casts: the layout is kept at the argument's own number.
  uint32_t root(uint32_t value) const {
    const auto it = alias_.find(value);
    return it == alias_.end() ? value : it->second;
  }
  Layout& layout(uint32_t value) { return layouts_[root(value)]; }
  void convert_sdy(const OpReader& reader, Region& to);
  void require_whole(const OpReader& reader);

  // The body joins the program of the core: its arguments are the local pieces of the operands.
  void manual_computation(const OpReader& reader, Region& to);

  // A function with a shard_map in it, called from main: its ops are converted here, once per call.
  void expand_call(const OpReader& reader, Region& to);

  // Ops outside of shard_map run on every core, so their operands must be whole.
  void require_replicated(const OpReader& reader);
  void convert_vhlo(const OpReader& reader, Region& to);

  // The core's own number is partition_id; the id that does not count cores is 0.
  const Op& core_number(const OpReader& reader, Kind kind, const Type& type, Region& to) const;
  void convert_regions_of_call(const OpReader& reader) const;
  void convert_regions(const OpReader& reader, Op& out);
  void require_captured_replicated(const OpReader& reader, const RawRegion& region, int depth);
  void define_results(const OpReader& reader, const Op& out);

  // Ops of old artifacts that are special cases of others.
  void convert_old_form(const OpReader& reader, const std::string& name, Region& to);

  const bytecode::RawModule& raw_;
  Tables tables_;
  ShardingReader shardings_;
  CoreCounts cores_;
  Module out_;
  std::map<std::string, const RawOp*> functions_;
  std::map<const RawOp*, bool> has_manual_;
  std::vector<Value*> values_;   // by value number
  std::vector<Layout> layouts_;  // by value number; only for values outside of shard_map
  std::map<uint32_t, uint32_t> alias_;
  LocRef outer_loc_;     // of the enclosing shard_map or expanded call
  bool at_top_ = false;  // converting ops outside of shard_map
  int call_depth_ = 0;
  size_t num_ops_ = 0;
};

}  // namespace tpu::compiler::frontend
