// Ops of a replica whose number decides what they are: tables of what each replica has, read by the
// number of the replica. Private to the import; see join_replicas.hpp.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/graph.hpp"

namespace tpu::compiler {

class ReplicaTables {
 public:
  // Appends to `body`, the program of one of so many replicas.
  ReplicaTables(Region& body, int64_t replicas) : body_(body), replicas_(replicas) {}

  // Of two ops with different attributes: one op can stand for both.
  static bool may_differ(const Op& a, const Op& b);

  Value* append(Kind kind, std::vector<Value*> operands, Type type, Attrs attrs, const LocRef& loc);
  // The replica's entry of a table, whose bytes these are.
  Value* entry(const Type& type, std::vector<std::byte> bytes, const LocRef& loc);
  // What each replica pads so, or slices so: ops by replica.
  Value* padded(const std::vector<const Op*>& ops, const std::vector<Value*>& operands);
  Value* sliced(const std::vector<const Op*>& ops, Value* operand);

 private:
  Value* number(int64_t n, const LocRef& loc);
  Value* replica(const LocRef& loc);
  // Part of `x` that begins where each replica has its own start.
  Value* part(Value* x, const std::vector<Dims>& starts, const Dims& sizes, const LocRef& loc);

  Region& body_;
  const int64_t replicas_;
  Value* replica_ = nullptr;
};

}  // namespace tpu::compiler
