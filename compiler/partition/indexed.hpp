// Gather from and scatter into a table that is cut along dimensions which indices address, as a
// vocabulary is cut over cores: each core works on the records of its part. Private to the pass.
#pragma once

#include "partition/mover.hpp"

namespace tpu::compiler {

class TablePart {
 public:
  // `op` with its factors cut by `axes`; `indices` are those that this core has.
  TablePart(Mover& mover, const Mesh& mesh, const Op& op, const FactorRule& rule,
            const std::vector<Axes>& axes, Value* indices);

  // The indices, counted from where the part begins: out of its bounds for records of others. As
  // they are where the table is not cut so.
  Value* indices() const { return indices_; }
  // A gather's result on the part: zeros for records of others.
  Value* own(Value* gathered);

 private:
  Value* entry(size_t number) const;
  Value* in_part(size_t number, const Axes& axes, int64_t part_size);

  Mover& mover_;
  const Op& op_;
  const Dims& table_dims_;  // of the table, by entry of an index vector
  size_t vector_dim_;       // of the indices
  Value* given_;
  Value* indices_;
  std::vector<Value*> inside_;  // by entry whose dimension is cut: records that lie in the part
};

}  // namespace tpu::compiler
