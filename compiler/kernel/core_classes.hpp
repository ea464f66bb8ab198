// Which cores surely hold the same value: for every value of the graph a partition of the cores
// into classes, found as a fixed point. Equal are replicated arguments and what is computed from
// them; a collective makes members of a group equal, and groups that put in the same. Small
// integers made of the core's number and constants, such as jax.lax.axis_index, are computed for
// each core.
#pragma once

#include <unordered_map>
#include <vector>

#include "ir/eval.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler {

// Class of each core, numbered from 0 in the order of first cores. Empty: all cores are alike.
using CoreClasses = std::vector<int>;

// Cores that are alike in both.
CoreClasses common_classes(const CoreClasses& a, const CoreClasses& b);

class ValueClasses {
 public:
  explicit ValueClasses(const Module& module);

  const CoreClasses& of(const Value* v) const;

 private:
  bool spread(const Region& region);
  bool spread_control(const Op& op);
  bool refine(const Value* v, const CoreClasses& classes);  // true if it tells more cores apart
  CoreClasses result_of(const Op& op);
  const std::vector<Tensor>* numbers_of(const Op& op);
  const Tensor* number_on(const Value* v, size_t core);
  CoreClasses after_collective(const Op& op, const CoreClasses& before) const;
  CoreClasses numbered(const std::vector<Dims>& names) const;  // equal names, one class
  CoreClasses apart() const;                                   // every core by itself

  size_t cores_;
  std::unordered_map<const Value*, CoreClasses>
      classes_;  // of values that are not alike everywhere
  std::unordered_map<const Value*, std::vector<Tensor>> numbers_;  // by core, where known
  std::unordered_map<const Value*, Tensor> constants_;             // small integers
};

}  // namespace tpu::compiler
