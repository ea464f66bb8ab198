// Makes the ops by which arrays come to lie otherwise on the cores, and sums over cores. Knows of
// every value that it or its caller made where it lies. Private to the pass `partition`.
#pragma once

#include <unordered_map>

#include "partition/spec.hpp"

namespace tpu::compiler {

using MoveLog = std::unordered_map<const Op*, MovedArray>;  // by the collective

class Mover {
 public:
  explicit Mover(const Mesh& mesh) : mesh_(mesh) {}

  // Where ops are made from now on, and for which op of the global graph.
  void place(Region& region, const Op& op) {
    region_ = &region;
    op_ = &op;
  }
  Region& region() { return *region_; }
  Value* make(Kind kind, std::vector<Value*> operands, Type type, Attrs attrs = NoAttrs{});

  // Along `unreduced` axes the cores have terms of the array.
  void define(Value* v, Spec spec, Axes unreduced = {});
  const Spec& spec(const Value* v) const { return specs_.at(v); }
  const Axes& unreduced(const Value* v) const;

  // True where the array lies so, or has been made to for another op.
  bool lies(const Value* v, const Spec& want) const;

  // The array lying as `want`, with as little traffic as these give: made anew (one value, iota),
  // cut (none), all_to_all, collective_permute, all_gather. Made once, where `v` was made. Terms
  // along other axes than `terms` are added up; terms that are new are zero but on one core.
  Value* reshard(Value* v, const Spec& want, const Axes& terms = {});

  // The sum over cores that differ along `axes`. A dimension that is to be cut by some of these, so
  // that it lies as in `wanted`, is cut at once: each core gets the sum of its part alone.
  Value* sum(Value* x, Axes axes, Kind reducer, Spec& spec, const Spec& wanted);

  // Every core gets the part of core order[its own] (Sharding::order), or what has that order gets
  // back its own. The same where there is none.
  Value* in_order(Value* x, const std::vector<int64_t>& order);
  Value* from_order(Value* x, const std::vector<int64_t>& order);
  // Parts along a dimension put together.
  Value* all_gather(Value* x, const Axes& axes, size_t dim);

  Value* number(int64_t n);        // i32
  Value* index(const Axes& axes);  // of this core along the axes, i32

  MoveLog& log() { return log_; }  // all collectives made

 private:
  Value* zeros(const Type& type);
  Groups groups(const Axes& axes) const;
  CollectiveAttrs collective(const Axes& axes) const;
  Value* reducing(Kind kind, Value* x, Type type, const CollectiveAttrs& attrs, Kind reducer);
  void report(Kind kind, const Value* v);

  Value* permuted(Value* x, PermuteAttrs attrs);
  Value* all_reduce(Value* x, const Axes& axes, Kind reducer);
  Value* reduce_scatter(Value* x, const Axes& axes, Kind reducer, size_t dim);

  Value* spread_as_terms(Value* x, Spec& now, const Spec& want, Axes& axes);
  Value* first_copy(Value* x, const Axes& axes);
  Value* remade(const Op& def, const Spec& want);
  Value* cut(Value* x, Spec& now, const Spec& want);
  Value* exchange(Value* x, Spec& now, const Spec& want);
  Value* permute(Value* x, Spec& now, const Spec& want);
  Value* gather(Value* x, Spec& now, const Spec& want);

  const Mesh& mesh_;
  Region* region_ = nullptr;
  const Op* op_ = nullptr;
  MoveLog log_;
  std::unordered_map<const Value*, Spec> specs_;
  std::unordered_map<const Value*, Axes> unreduced_;  // of values that are terms
  std::unordered_map<const Value*, std::vector<Value*>> moved_;
};

}  // namespace tpu::compiler
