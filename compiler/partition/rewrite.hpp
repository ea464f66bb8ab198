// From the placements of the global graph to what one core computes: each op on the parts that the
// core has, after operands were moved to where the op needs them, with sums over cores behind it
// where a summed dimension is cut. Private to the pass `partition`.
#pragma once

#include <map>

#include "partition/indexed.hpp"
#include "partition/propagate.hpp"
#include "partition/unreduced.hpp"
#include "partition/updates.hpp"

namespace tpu::compiler {

class Rewrite {
 public:
  Rewrite(Module& module, const Placements& placements, const UnreducedArrays& unreduced)
      : module_(module),
        mesh_(module.mesh),
        placements_(placements),
        unreduced_(unreduced),
        mover_(module.mesh),
        settled_(settled_updates(module, placements)) {}

  // Gives main the graph of one core; shardings of arguments and results say what it has. Returns
  // the collectives that it made.
  MoveLog run();

 private:
  void emit_region(const Region& from);  // without its return
  void emit(const Op& op);
  Value* now(const Value* v) const { return map_.at(v); }  // what stands for it
  void define(const Value* old, Value* v, Spec spec, Axes unreduced = {});
  Sharding result_sharding(size_t i, const Spec& natural, const Axes& unreduced) const;

  // Ops with a rule.
  void compute(const Op& op);
  void compute_sum(const Op& op, std::vector<Value*> operands, Type type, Spec spec, Axes summed,
                   Axes terms, std::optional<TablePart>& table);
  std::vector<Axes> cuts(const Op& op, const FactorRule& rule) const;
  Op* local_op(const Op& op, const std::vector<Value*>& operands, std::vector<Type> types);
  Value* gathered_bits(TablePart& table, Value* own, Axes axes, Kind reducer, Spec& spec,
                       const Spec& wanted);
  Value* combine(const Op& op, Value* x, Value* once, Kind reducer, const Spec& spec,
                 const Axes& unreduced);
  bool reduce_parts(const Op& op, const FactorRule& rule, const std::vector<Axes>& axes);

  // Ops with regions that run, in rewrite_control.cpp.
  void control(const Op& op);
  void region(const Region& from, Op& to, const std::vector<Spec>& carried,
              const std::vector<Spec>& returned, const std::vector<Axes>& unreduced);
  void manual(const Op& op);
  void check_order(const Op& op) const;

  // With the host.
  void barrier(const Op& op);
  void send(const Op& op);
  void recv(const Op& op);

  // An op that the framework cuts itself, in rewrite_own.cpp.
  void own(const Op& op);

  Module& module_;
  const Mesh& mesh_;
  const Placements& placements_;
  const UnreducedArrays& unreduced_;
  Mover mover_;
  const std::unordered_map<const Value*, Spec> settled_;  // results that are computed there
  std::map<int64_t, Value*> in_host_memory_;              // what each core keeps, by channel
  ValueMap map_;                                          // of the global graph to what a core has
};

}  // namespace tpu::compiler
