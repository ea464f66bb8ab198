// By which axes an op's factors are cut on the cores. Private to the pass `partition`.
#pragma once

#include "partition/spec.hpp"

namespace tpu::compiler {

// An array of an op where it lies, or where it should. One operand or result of `rule`.
struct Voter {
  const DimFactors* dims;
  Spec spec;
  int64_t bytes = 0;  // of the whole array
};

// For each factor the axes that most bytes lie by, disjoint. An op of which nothing is cut is
// computed on all cores.
std::vector<Axes> choose_cuts(const Mesh& mesh, const FactorRule& rule,
                              const std::vector<Voter>& voters);

}  // namespace tpu::compiler
