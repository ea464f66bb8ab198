// The converter from raw VHLO ops to graph ops. Its parts: normalise.cpp (ops, regions, functions),
// normalise_main.cpp (arguments and results of main), normalise_sharding.cpp (jax.shard_map and
// sharding constraints), normalise_forms.cpp (ops that are others), normalise_gspmd.cpp (shardings
// in GSPMD's language), custom_calls.cpp,
// host_calls.cpp, survey.cpp (what a refused program holds). Private to the import; see
// normalise.hpp for the entry.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "import/attr_reader.hpp"
#include "import/gspmd.hpp"
#include "import/import.hpp"
#include "import/op_attrs.hpp"
#include "import/sharding.hpp"

namespace tpu::compiler::frontend {

using bytecode::RawOp;
using bytecode::RawRegion;

// Calls in each other. Walks over the calls of a checked artifact recurse no deeper.
constexpr int kMaxCallDepth = 64;

class Normaliser {
 public:
  Normaliser(const bytecode::RawModule& raw, const std::string& name, const ImportOptions& options)
      : raw_(raw),
        options_(options),
        tables_(raw),
        cores_(core_counts(tables_, options)),
        shardings_(tables_, cores_.partitions, atoms_),
        gspmd_(tables_, raw.module),
        values_(raw.num_values, nullptr) {
    out_.name = name;
  }

  Module run();

 private:
  OpReader open(const RawOp& op) {
    return {tables_, op, display_name(op), nested_loc(outer_loc_, tables_.loc(op.loc))};
  }

  static CoreCounts core_counts(const Tables& tables, const ImportOptions& options);

  // call_nesting.cpp: refuses recursion and what lies too deep in calls and regions.
  struct CallNode;
  void check_calls();
  void follow_calls(const RawOp& function, std::map<const RawOp*, CallNode>& nodes);
  const RawOp* referred_function(const RawOp& op) const;  // of a call or composite
  [[noreturn]] void fail_recursion(const RawOp& call, const std::string& callee,
                                   const std::string& through);
  [[noreturn]] void fail_depth(const RawOp& call, bool regions);

  const RawOp* called_function(const RawOp& op) const;

  // Where the function is called, with a source line if any chain of callers has one; null if it is
  // not called.
  LocRef caller_loc(const RawOp& callee);
  LocRef caller_loc(const RawOp& callee, std::set<const RawOp*>& seen);
  const RawOp* call_of(const RawOp& callee, const RawOp& within) const;
  static const RawRegion& body_of(const RawOp& op, const OpReader& reader);
  void convert_functions();
  void convert_main(const RawOp& op);

  // Arguments have no place in the source: an error names the first op that uses the argument.
  Type arg_type(const OpReader& reader, const RawRegion& body, size_t i);

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

  Value* made_token(const LocRef& loc, const Type& type, Region& to);
  bool gives_token(const OpReader& reader, size_t i) const;  // main, as its result i

  // Results of main: types, wanted shardings, names.
  void finish_results(const OpReader& reader, const RawOp& ret, Function& f);

  void convert_function(const RawOp& op);
  void convert_ops(const RawRegion& region, Region& to);
  Value* operand(const OpReader& reader, size_t i) const;
  std::vector<Value*> operands(const OpReader& reader) const;
  void convert_op(const RawOp& op, Region& to);
  void check_known(const OpReader& reader) const;   // the op has a meaning here, or throws
  void check_target(const OpReader& reader) const;  // of a custom call
  void identity(const OpReader& reader);

  void convert_sdy(const OpReader& reader, Region& to);
  void sharding_constraint(const OpReader& reader, Kind kind, Region& to);
  void sharding_group(const OpReader& reader, Region& to);
  // Throws unless all arrays of a group have this shape.
  void check_group(const OpReader& reader, std::optional<int64_t> group, const Dims& dims);
  void manual_computation(const OpReader& reader, Region& to);

  GspmdSharding gspmd_of(const OpReader& reader, size_t rank);  // attribute of an op
  bool gspmd_custom_call(const OpReader& reader, Region& to);   // false: it is another one
  bool is_gspmd_shard_map(const RawOp& call) const;
  void gspmd_shard_map(const OpReader& reader, Region& to);
  Value* enter_gspmd(const RawOp& entry, ManualAttrs& attrs);
  void add_manual_axes(const GspmdSharding& of, ManualAttrs& attrs) const;

  void convert_vhlo(const OpReader& reader, Region& to);

  // chlo.cpp
  void convert_chlo(const OpReader& reader, Region& to);
  void chlo_top_k(const OpReader& reader, const std::vector<Type>& types, Region& to);
  std::vector<Type> result_types(const OpReader& reader) const;

  // host_calls.cpp: send and recv, an op of the graph for each array.
  void host_transfer(const OpReader& reader, Kind kind, Region& to);
  int64_t speaking_partition(const OpReader& reader);

  // custom_calls.cpp: those whose meaning is known become ops of the graph.
  void custom_call(const OpReader& reader, Region& to);
  void own_partitioning(const OpReader& reader, Region& to);
  void approx_top_k(const OpReader& reader, Region& to);
  void device_placement(const OpReader& reader);

  // survey.cpp: after a first error, all that is not supported in one.
  struct Survey;
  [[noreturn]] void fail_all(const Error& first);
  void survey_function(const RawOp& op, Survey& survey);
  void survey_region(const RawRegion& region, const OpReader& owner, Survey& survey);

  // The core's own number is partition_id of the graph, from which both ids follow.
  const Op& core_number(const OpReader& reader, Kind kind, const Type& type, Region& to) const;
  // dot_general of i1: an element is true if any of its products is. A sum of ones on the matrix
  // unit is never 0; with a result of numbers it counts.
  const Op& product_of_truths(const OpReader& reader, const DotAttrs& attrs, const Type& type,
                              Region& to) const;
  void convert_regions_of_call(const OpReader& reader) const;
  void convert_regions(const OpReader& reader, Op& out);
  void define_results(const OpReader& reader, const Op& out);

  // normalise_forms.cpp: ops that are special cases of others, as those.
  static bool is_form(std::string_view name);
  const Op* convert_form(const OpReader& reader, const std::string& name, Region& to);

  const bytecode::RawModule& raw_;
  const ImportOptions options_;
  Tables tables_;
  const CoreCounts cores_;
  MeshAtoms atoms_;
  ShardingReader shardings_;
  const GspmdShardMaps gspmd_;
  Module out_;
  std::map<std::string, const RawOp*> functions_;
  std::vector<Value*> values_;          // by value number
  std::map<int64_t, Dims> group_dims_;  // of the arrays of a sharding group
  LocRef outer_loc_;                    // of the enclosing shard_map
  size_t num_ops_ = 0;
};

}  // namespace tpu::compiler::frontend
