// How the pass `partition` says where an array lies, and how that follows from an op's factors
// (rules/rules.hpp). Private to the pass.
#pragma once

#include "ir/graph.hpp"
#include "partition/rules/rules.hpp"

namespace tpu::compiler {

using Axes = std::vector<int>;   // of Module::mesh, major first
using Spec = std::vector<Axes>;  // per dimension the axes that cut it; Sharding with all entries
using DimFactors = std::vector<std::vector<int>>;  // of one tensor of a rule

Spec spec_of(const Sharding& sharding, const Type& type);
Sharding sharding_of(const Spec& spec, const Axes& unreduced = {});

bool is_whole(const Spec& spec);
bool is_prefix(const Axes& a, const Axes& b);  // of a in b
bool is_disjoint(const Axes& a, const Axes& b);
bool holds(const Axes& axes, int axis);
bool holds_all(const Axes& axes, const Axes& wanted);
Axes tail(const Axes& axes, size_t from);
Axes all_axes(const Spec& spec);  // of all dimensions, in rising order
void append(Axes& to, const Axes& axes);

// What `axes` begin with that are axes of the program's own mesh, all their parts in order: no
// framework can say of an array that a part of an axis cuts it.
Axes whole_axes(const Mesh& mesh, const Axes& axes);
Spec whole_axes(const Mesh& mesh, Spec spec);

int64_t axis_size(const Mesh& mesh, int axis);
int64_t num_parts(const Mesh& mesh, const Axes& axes);
// The part of an array of type `whole` that a core has.
Type local_part(const Mesh& mesh, Type whole, const Spec& spec);
// True if every dimension can be cut so and no axis is used twice.
bool can_cut(const Mesh& mesh, const Type& whole, const Spec& spec);

// Axes by which a tensor that lies as `spec` cuts each factor: a dimension cuts its factors major
// first, one behind another only where that is cut to single elements.
std::vector<Axes> project(const Mesh& mesh, const FactorRule& rule, const DimFactors& tensor,
                          const Spec& spec);
// Where a tensor lies whose factors are cut by `axes`.
Spec lift(const Mesh& mesh, const FactorRule& rule, const DimFactors& tensor,
          const std::vector<Axes>& axes);

// Bytes that a core gets so that an array of `bytes` which lies as `from` lies as `to`.
int64_t moved_bytes(const Mesh& mesh, int64_t bytes, const Spec& from, const Spec& to);

// Rule of arrays of one shape that are one value: what a loop carries, the results of branches.
FactorRule same_rule(const Type& type, size_t tensors);

}  // namespace tpu::compiler
