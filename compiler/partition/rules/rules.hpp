// Which dimensions of an op's operands and results move together when arrays are cut: the table
// behind the sharding pass, one rule per op, from the definitions of StableHLO.
//
// A factor is a loop of the op. A dimension is the product of its factors, the slowest first:
//   y[m, n] = dot_general(x[m, k], w[k, n])      factors m pass, n pass, k reduce
//   y[a, b] = reshape(x[a * b])                  factors a, b pass; dimension 0 of x is (a, b)
// Cores that cut a pass factor compute the same op on their parts and get their part of the result.
// Cores that cut a reduce factor get a whole result each; those combined by `reducer` are the
// result. A blocked factor is whole on every core. A factor behind others of its dimension may be
// cut only where those are cut to single elements.
#pragma once

#include <optional>

#include "ir/graph.hpp"

namespace tpu::compiler {

enum class FactorKind : uint8_t { kPass, kReduce, kBlocked };

struct Factor {
  int64_t size = 1;
  FactorKind kind = FactorKind::kPass;
};

// Gather and scatter: a dimension of the table that an entry of each index vector addresses. Cores
// that cut it look up or update what lies in their part, by indices that begin there.
struct IndexedFactor {
  int factor = 0;
  int64_t entry = 0;  // of the index vectors
};

struct FactorRule {
  std::vector<Factor> factors;
  // [tensor][dimension] -> factors, major first; none for a dimension of one element.
  std::vector<std::vector<std::vector<int>>> operands, results;
  Kind reducer = Kind::kAdd;  // of the reduce factors
  std::vector<IndexedFactor> indexed;
};

// Ops whose regions run (while, if, case, manual_computation) and ops without a rule of their own
// are blocked in all dimensions. `iota` passes along its own dimension too: there the caller adds
// where the part begins. Only constants of one value pass.
FactorRule rule_of(const Op& op);

// The attributes of the op on its parts: operands and results cut as the rule allows.
Attrs local_attrs(const Op& op, const std::vector<Type>& local_operands,
                  const std::vector<Type>& local_results);

// With a reduce factor cut, the operand that would be combined into the result once per core: the
// initial value of a reduce, the target of a scatter. The caller gives cores the identity instead
// and combines the operand after the cores' results. Nothing where once more changes nothing.
std::optional<size_t> combined_once(const Op& op, Kind reducer);

// The value that add, multiply or xor combine into nothing. Zero of floats is -0: x + -0 is x for
// +0 and -0 alike.
Dense identity_of(Kind reducer, const Type& type);
// True if combining with the constant more than once is as good as once.
bool is_identity(Kind reducer, const Dense& value);

}  // namespace tpu::compiler
