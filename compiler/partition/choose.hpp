// By which axes an op's factors are cut on the cores. Private to the pass `partition`.
#pragma once

#include <functional>

#include "partition/spec.hpp"

namespace tpu::compiler {

// An array of an op: an operand where it lies, or a result where it should.
struct Voter {
  const DimFactors* dims;
  Spec spec;
  int64_t bytes = 0;  // of the whole array
  bool is_result = false;
  // Of an operand: true for other places where it is, too.
  std::function<bool(const Spec&)> is_at = nullptr;
};

// For each factor its axes, disjoint. First by the bytes that lie so; other cuts that work on as
// many parts are taken if fewer bytes move. An op of which nothing is cut is computed on all cores.
std::vector<Axes> choose_cuts(const Mesh& mesh, const FactorRule& rule,
                              const std::vector<Voter>& voters);

}  // namespace tpu::compiler
