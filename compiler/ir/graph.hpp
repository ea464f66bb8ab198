// The graph (level G): what is computed, in SSA form. The import gives the global graph, as the
// program says it: whole arrays, with shardings as attributes and jax.shard_map as an op. The pass
// `partition` makes the graph of one core of it, which all cores run. Plain data: an op owns its
// results and regions, a region owns its ops in program order, operands are pointers to values of
// the same or an enclosing region, and users are computed on demand. A Module is movable, and
// shares nothing but constant bytes and locations: several compilations may run at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/attrs.hpp"
#include "ir/error.hpp"
#include "ir/memory_kind.hpp"
#include "ir/op_kinds.hpp"
#include "ir/type.hpp"

namespace tpu::compiler {

struct Op;
struct Region;

struct Value {
  Type type;
  Op* def = nullptr;        // op that makes it; null for a region argument
  Region* owner = nullptr;  // region whose argument it is; null for an op result
  int index = 0;            // position among the op's results or the region's arguments

  bool is_argument() const { return def == nullptr; }
};

// A region has one block. Its last op is `return`, whose operands are the region's results.
struct Region {
  Op* parent = nullptr;  // null for a function body
  std::vector<std::unique_ptr<Value>> args;
  std::vector<std::unique_ptr<Op>> ops;

  Region() = default;
  Region(const Region&) = delete;  // ops point into it
  Region& operator=(const Region&) = delete;

  Value* add_arg(Type type);
  // Appends an op; `attrs` may be given later. Regions are added to the op by the caller.
  Op* append(Kind kind, std::vector<Value*> operands, std::vector<Type> result_types, Attrs attrs,
             LocRef loc);
  Op* terminator() const;  // the `return` op; null in an unfinished region
};

using OpId = uint32_t;  // unique in the module, stable over passes; ops made by passes get new ones

struct Op {
  Kind kind = Kind::kReturn;
  OpId id = 0;
  std::vector<Value*> operands;
  std::vector<std::unique_ptr<Value>> results;
  Attrs attrs;
  std::vector<std::unique_ptr<Region>> regions;
  LocRef loc;                // never null
  Region* parent = nullptr;  // region that holds the op

  Value* result(size_t i = 0) const { return results[i].get(); }
  const Type& type(size_t i = 0) const { return results[i]->type; }
  const Type& operand_type(size_t i) const { return operands[i]->type; }
  template <typename T>
  const T& as() const {
    return std::get<T>(attrs);
  }
  Region* add_region();
  void add_result(Type type);
};

// What a value of the function is of a parameter or result: 64-bit integers have two values each
// behind the pass `split_wide`, the low words and next to them the high words.
enum class WordPart : uint8_t { kWhole, kLow, kHigh };

struct ArgInfo {
  std::string name;       // from the location or `jax.arg_info`; may be empty
  Type global;            // the array the host sees
  Sharding sharding;      // graph of one core: body.args[i]->type is what is left of `global`
  int alias_result = -1;  // `tf.aliasing_output`: this result takes the argument's memory
  bool donated = false;   // the argument's memory may be reused (`jax.buffer_donor` or aliasing)
  std::optional<ShardingAttrs> wanted = {};  // what the program says; nothing: it leaves it open
  bool is_complex = false;  // the host's array is complex64; `global` has its parts as [.., 2]
  bool is_double = false;   // the host's array is f64; `global` has its bits, ui64
  Dims layout = {};  // which dimension of the program's array each of `global` is; empty: in order
  WordPart part = WordPart::kWhole;
  MemoryKind memory = MemoryKind::kDevice;  // between programs
};
struct ResultInfo {
  std::string name;  // from `jax.result_info`; may be empty
  Type global;
  Sharding sharding;
  std::optional<ShardingAttrs> wanted = {};
  bool is_complex = false;  // as in ArgInfo
  bool is_double = false;
  Dims layout = {};
  WordPart part = WordPart::kWhole;
  MemoryKind memory = MemoryKind::kDevice;  // between programs
};

struct Function {
  std::string name;
  std::vector<ArgInfo> args;        // one per body.args entry
  std::vector<ResultInfo> results;  // one per operand of the body's return
  Region body;
  LocRef loc;
};

// Number of the parameter (result) that entry `i` of the list is of, or is a word of.
template <typename Info>
size_t parameter_number(const std::vector<Info>& list, size_t i) {
  const auto begin = list.begin(), end = begin + static_cast<ptrdiff_t>(i) + 1;
  const auto later_words =
      std::count_if(begin, end, [](const Info& info) { return info.part == WordPart::kHigh; });
  return i - static_cast<size_t>(later_words);
}

// An op that a framework cuts over the cores itself (jax.experimental.custom_partitioning): how its
// arrays lie, and how they shall lie for the program of one core that computes it.
struct PartitionRequest {
  std::string target, config;  // of the custom call
  std::vector<Type> operands, results;
  std::vector<TileList> operand_tiles, result_tiles;
  bool operator==(const PartitionRequest&) const = default;
};
struct PartitionedOp {
  std::unique_ptr<Function> program;  // on the parts, as the pass `partition` finds main
  std::vector<TileList> operand_tiles, result_tiles;
};
using OwnPartitioner = std::function<PartitionedOp(const PartitionRequest&)>;

// What the cores exchange so that an op of the global graph can be computed: made by the pass
// `partition` for what does not lie as the op needs it.
struct MovedArray {
  Kind kind = Kind::kAllGather;  // of the collective
  Type type;                     // what one core gives
  int64_t bytes = 0;             // what one core gets
  std::string op;                // for which it is
  LocRef loc;
};

struct Module {
  std::string name;
  Mesh mesh;              // no axes: a program for one core
  int64_t num_cores = 1;  // cores that run the program together (partitions, or replicas of pmap)
  bool global = false;    // the global graph: see the head of this file
  std::unique_ptr<Function> main;
  std::vector<std::unique_ptr<Function>> functions;  // callees; empty after the pass `inline`
  OpId next_id = 1;
  uint64_t rng_seed = 0;           // of `rng` ops: CompileOptions::rng_seed
  std::vector<MovedArray> moved;   // in program order
  std::vector<std::string> notes;  // what passes remark for the user
  OwnPartitioner partitioner;      // of custom calls of the global graph; empty: there are none
  // Ops that are computed right in front of what reads them, not as early as possible, and of which
  // group of such ops each is: those of a group are computed together (passes/rematerialise.hpp).
  std::unordered_map<OpId, int> late;
  int late_groups = 0;

  Function* find(const std::string& function_name) const;  // null if there is none
  // Gives ids to all ops that have none (0); passes call it through the pass manager.
  void number_ops();
};

// Users of every value used in the region or inside it, in program order; an op appears once per
// use.
using Uses = std::unordered_map<const Value*, std::vector<Op*>>;
Uses compute_uses(const Region& region);

// What stands for a value: itself where the map says nothing. No chains are followed.
using ValueMap = std::unordered_map<const Value*, Value*>;
Value* mapped(Value* v, const ValueMap& map);
std::vector<Value*> mapped(std::vector<Value*> values, const ValueMap& map);

// Replaces every use of `from` by `to` in the region and the regions inside it.
void replace_all_uses(Region& region, const Value* from, Value* to);
void replace_all_uses(Region& region, const ValueMap& map);

// Calls fn(op) for every op, in program order, regions after their op.
template <typename Fn>
void walk(const Region& region, Fn&& fn) {
  for (const auto& op : region.ops) {
    fn(*op);
    for (const auto& inner : op->regions) {
      walk(*inner, fn);
    }
  }
}

// Appends a copy of `op` (with regions) to `to`; operands are looked up in `map`, and results added
// to it.
Op* clone_op(const Op& op, Region& to, ValueMap& map);
// Gives `to` a copy of a region; the same of `map`.
void clone_region(const Region& region, Op& to, ValueMap& map);

// For reduce-like regions: the kind of the one op that combines (arg 0, arg 1) in any order and is
// returned, e.g. kAdd, kMaximum, kAnd. Nothing if the body is anything else.
std::optional<Kind> simple_reducer(const Region& body);

// Throws: `where` has no rule for the kind of `op`, which others let through.
[[noreturn]] void fail_unknown_kind(const Op& op, const char* where);

// True if the op must stay although nobody uses its results (side effects).
bool has_side_effect(const Op& op);

// Readable and stable: values are numbered in program order. With locations, each op's first source
// line.
std::string print(const Module& module, bool with_locations = false);
// A region or op alone: arguments are numbered first, values from outside are "%?".
std::string print(const Region& region, bool with_locations = false);
std::string print(const Op& op);

}  // namespace tpu::compiler
