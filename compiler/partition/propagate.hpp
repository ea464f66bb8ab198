// Where every array of the global graph should lie, from what the program says of some of them:
// shardings go forwards and backwards over the factors of each op (rules/rules.hpp) until nothing
// changes, first over all ops but contractions, reductions and scatters, then over these too, and
// last from arrays to larger ones that they are spread over, such as from a bias. Where two
// shardings meet that do not go together, neither passes. Nothing moves here: rewrite.hpp makes
// of it what each core computes. Private to the pass `partition`.
#pragma once

#include <map>
#include <unordered_map>

#include "partition/spec.hpp"
#include "partition/unreduced.hpp"

namespace tpu::compiler {

// Cheap to make anywhere: constants, iota, and scalars spread over an array. They lie as their
// users want them: one may be used by arrays that have nothing else to do with each other.
bool is_free(const Value* v);

// The rule of an op without regions that run; also of collectives. Those in a shard_map that leaves
// axes open work alike on all parts along those axes.
FactorRule rule_for(const Op& op, bool in_shard_map);

class Placements {
 public:
  Placements(const Module& module, const UnreducedArrays& unreduced);  // propagates

  const Spec& of(const Value* v) const { return specs_[number_.at(v)]; }
  const FactorRule& rule(const Op& op) const { return rules_.at(&op); }

 private:
  // Arrays that one rule ties together. Of `within` the axes of a shard_map stand first in each
  // dimension, outside of its body only; `manual` are all of these.
  struct Tensor {
    size_t value;
    const DimFactors* dims;
    const Spec* within = nullptr;
  };
  struct Relation {
    const FactorRule* rule;
    std::vector<Tensor> tensors;
    Axes manual;
    int round = 0;  // in which it takes part
  };

  void number(const Region& region);
  void seed(const Value* v, const ShardingAttrs& wanted, bool closed);
  void seed_all();
  void seed_region(const Region& region);
  void relate(const Region& region);
  void relate_op(const Op& op);
  void relate_manual(const Op& op);
  void relate_same(const std::vector<const Value*>& values);
  void relate_groups();
  void add_tensor(Relation& relation, const Value* v, const DimFactors& dims,
                  const Spec* within = nullptr);
  void propagate();
  bool spread(const Relation& relation);
  std::vector<Axes> cuts(const Relation& relation, const Tensor& tensor) const;
  std::vector<Axes> agreed(const Relation& relation,
                           const std::vector<std::vector<Axes>>& own) const;
  bool extend(const Relation& relation, const Tensor& tensor, std::vector<Axes> own,
              const std::vector<Axes>& best);

  const Module& module_;
  const UnreducedArrays& unreduced_;
  std::unordered_map<const Value*, size_t> number_;
  std::vector<Spec> specs_;               // by value number
  std::vector<Axes> terms_;               // axes that may cut none: along them cores have terms
  std::vector<std::vector<bool>> fixed_;  // dimensions that may not be cut further
  std::unordered_map<const Op*, FactorRule> rules_;
  std::vector<std::unique_ptr<FactorRule>> same_;
  bool in_shard_map_ = false;                            // of the region at hand
  std::vector<Relation> relations_;                      // in program order
  std::map<int64_t, const Value*> in_host_memory_;       // sent there, by channel
  std::map<int64_t, std::vector<const Value*>> groups_;  // of the region at hand; by number
};

}  // namespace tpu::compiler
