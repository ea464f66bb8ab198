// Collects the factors of one op. Private to the rules, which lie by family in rules.cpp,
// contraction.cpp and index.cpp.
#pragma once

#include <algorithm>

#include "partition/rules/rules.hpp"

namespace tpu::compiler {

class RuleBuilder {
 public:
  explicit RuleBuilder(const Op& op);

  // Its number; -1, which in() and out() leave out, where there is nothing to cut.
  int factor(int64_t size, FactorKind kind = FactorKind::kPass);
  void in(size_t operand, int64_t dim, int factor);  // appended: major factors first
  void out(size_t result, int64_t dim, int factor);
  // A pass factor of a dimension of one operand and one of result 0.
  void pair(size_t operand, int64_t dim, int64_t result_dim, int64_t size);
  // A pass factor of dimension `dim` in every operand and result that has the rank; the others hold
  // one value for all.
  void everywhere(int64_t dim, int64_t rank, int64_t size);
  void address(int factor, int64_t entry);  // of the table, by an entry of the index vectors
  void set_reducer(Kind kind) { rule_.reducer = kind; }

  const Op& op() const { return op_; }
  int64_t size_in(size_t operand, int64_t dim) const;
  int64_t size_out(size_t result, int64_t dim) const;

  // What is left of each dimension is blocked.
  FactorRule done();

 private:
  void block_rest(std::vector<std::vector<int>>& dims, const Type& type);

  const Op& op_;
  FactorRule rule_;
};

// By which cores combine the results of their parts; none where the body is more than one op, or
// one that they cannot exchange: products and extremes of 64-bit integers, which travel as halves.
std::optional<Kind> reducer_over_cores(const Op& op);

inline bool contains(const Dims& list, int64_t d) {
  return std::find(list.begin(), list.end(), d) != list.end();
}

// Families of ops.
void dot_rule(RuleBuilder& b);
void convolution_rule(RuleBuilder& b);
void gather_rule(RuleBuilder& b);
void scatter_rule(RuleBuilder& b);
void reshape_rule(RuleBuilder& b);

// A window of `extent` elements at `offset` in each `stride` elements of a dimension that is
// nothing but them: position o sees elements of block o alone.
inline bool in_own_blocks(int64_t in, int64_t out, int64_t stride, int64_t extent,
                          int64_t offset = 0) {
  return in == out * stride && offset >= 0 && offset + extent <= stride;
}

}  // namespace tpu::compiler
