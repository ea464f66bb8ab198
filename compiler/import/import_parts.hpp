// The parts of the converter from raw VHLO ops to graph ops, each with the ops or the question that
// it knows: call_nesting.cpp (who calls whom), normalise_main.cpp (arguments and results of main),
// normalise_sharding.cpp (jax.shard_map and sharding constraints), normalise_gspmd.cpp (the same in
// GSPMD's language), chlo.cpp, host_calls.cpp, custom_calls.cpp, normalise_forms.cpp (ops that are
// special cases of others), survey.cpp (what a refused program holds). Private to the import.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "import/import_state.hpp"

namespace tpu::compiler::frontend {

// Calls in each other. Walks over the calls of a checked artifact recurse no deeper.
constexpr int kMaxCallDepth = 64;

class CallGraph : public ImportPart {
 public:
  using ImportPart::ImportPart;

  // Refuses recursion and what lies too deep in calls and regions.
  void check();
  // Where the function is called, with a source line if any chain of callers has one; null if it is
  // not called.
  LocRef caller_loc(const RawOp& callee);

 private:
  struct CallNode;
  void follow_calls(const RawOp& function, std::map<const RawOp*, CallNode>& nodes);
  [[noreturn]] void fail_recursion(const RawOp& call, const std::string& callee,
                                   const std::string& through);
  [[noreturn]] void fail_depth(const RawOp& call, bool regions);
  LocRef caller_loc(const RawOp& callee, std::set<const RawOp*>& seen);
  const RawOp* call_of(const RawOp& callee, const RawOp& within) const;
};

class MainInterface : public ImportPart {
 public:
  using ImportPart::ImportPart;

  void convert(const RawOp& op, RegionConverter& regions);
  // Arguments have no place in the source: an error names the first op that uses the argument.
  Type arg_type(const OpReader& reader, const RawRegion& body, size_t i);
  // By argument: all replicas are given the same (`mhlo.is_same_data_across_replicas`).
  const std::vector<bool>& same() const { return same_; }

 private:
  // First op with a source line that uses the value; casts and calls are looked through. `seen`:
  // arguments of functions that are looked at already.
  const RawOp* first_use(const RawRegion& region, uint32_t value, std::set<uint32_t>& seen);
  // The first op that uses the argument, else the function.
  OpReader user_of_argument(const OpReader& reader, const RawRegion& body, size_t i);
  std::string argument_text(const RawRegion& body, size_t i);  // "argument 2 ('w')"
  void read_arg_attrs(const OpReader& reader, const RawRegion& body, size_t i, uint32_t dictionary,
                      ArgInfo& info);

  // What the attributes of an argument or result say of its sharding. Throws Error whose place the
  // caller knows.
  std::optional<ShardingAttrs> wanted_sharding(const OpReader& reader, uint32_t dictionary,
                                               const Type& type);

  // Where the dimensions of an argument or result should lie in memory; none: in order.
  Dims wanted_layout(uint32_t dictionary, const Type& type) const;
  // Where the framework keeps an argument or result.
  MemoryKind memory_of(uint32_t dictionary) const;
  bool gives_token(const OpReader& reader, size_t i) const;  // main, as its result i

  // Results of main: types, wanted shardings, names.
  void finish_results(const OpReader& reader, const RawOp& ret, Function& f);

  std::vector<bool> same_;
};

class ShardyOps : public ImportPart {
 public:
  ShardyOps(ImportState& state, RegionConverter& regions) : ImportPart(state), regions_(regions) {}

  void convert(const OpReader& reader, Region& to);

 private:
  void sharding_constraint(const OpReader& reader, Kind kind, Region& to);
  void sharding_group(const OpReader& reader, Region& to);
  void manual_computation(const OpReader& reader, Region& to);

  RegionConverter& regions_;
};

class GspmdOps : public ImportPart {
 public:
  using ImportPart::ImportPart;

  bool convert_custom_call(const OpReader& reader, Region& to);  // false: it is another one
  bool is_shard_map(const RawOp& call) const;
  void convert_shard_map(const OpReader& reader, Region& to);

 private:
  GspmdSharding sharding_of(const OpReader& reader, size_t rank);  // attribute of an op
  Value* enter(const RawOp& entry, ManualAttrs& attrs, std::vector<GspmdSharding>& axes);
  void add_manual_axes(const GspmdSharding& of, ManualAttrs& attrs) const;
  void set_manual_axes(const std::vector<GspmdSharding>& said, ManualAttrs& attrs);
};

class ChloOps : public ImportPart {
 public:
  using ImportPart::ImportPart;

  void convert(const OpReader& reader, Region& to);
  // As the op `name` of CHLO, whatever the reader's op is called.
  void convert_as(const std::string& name, const OpReader& reader, Region& to);
  // The k first of the last dimension, sorted, and their places; k is that of the results.
  void top_k(const OpReader& reader, bool largest, Region& to);
};

// send and recv, an op of the graph for each array.
class HostTransfers : public ImportPart {
 public:
  using ImportPart::ImportPart;

  void convert(const OpReader& reader, Kind kind, Region& to);

 private:
  int64_t speaking_partition(const OpReader& reader);
};

// Those whose meaning is known become ops of the graph.
class CustomCalls : public ImportPart {
 public:
  CustomCalls(ImportState& state, RegionConverter& regions, ChloOps& chlo)
      : ImportPart(state), regions_(regions), chlo_(chlo) {}

  void convert(const OpReader& reader, Region& to);

 private:
  void own_partitioning(const OpReader& reader, Region& to);
  void approx_top_k(const OpReader& reader, Region& to);
  void device_placement(const OpReader& reader, Region& to);
  void op_of_mhlo(const std::string& name, const OpReader& reader, Region& to);

  RegionConverter& regions_;
  ChloOps& chlo_;
};

// Custom calls that resize images (resize.cpp), as ops of the graph.
bool is_resize(std::string_view target);
Value* convert_resize(const OpReader& reader, const std::vector<Value*>& operands,
                      const std::vector<Type>& results, Region& to);

// Throws unless the target of the custom call is known.
void check_target(const OpReader& reader, const ImportOptions& options);
// Throws unless the op has a meaning here.
void check_known(const OpReader& reader, const bytecode::RawModule& raw,
                 const ImportOptions& options);

// After a first error, all that is not supported in one.
class Survey : public ImportPart {
 public:
  Survey(ImportState& state, CallGraph& calls, MainInterface& interface)
      : ImportPart(state), calls_(calls), interface_(interface) {}

  [[noreturn]] void fail(const Error& first);

 private:
  struct Findings;
  void in_function(const RawOp& op, Findings& survey);
  void in_region(const RawRegion& region, const OpReader& owner, Findings& survey);

  CallGraph& calls_;
  MainInterface& interface_;
};

// The region of a reduce that adds. `scalar`: type of an element.
void add_sum_region(Op& reduce, const Type& scalar, const LocRef& loc);

// Ops that are special cases of others, as those.
bool is_form(std::string_view name);
const Op* convert_form(const OpReader& reader, const std::string& name,
                       const std::vector<Value*>& operands, Region& to);

}  // namespace tpu::compiler::frontend
