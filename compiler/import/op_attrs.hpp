// Attributes of one VHLO op as the graph's typed struct, versions evened out. Private to the
// import.
#pragma once

#include <string>

#include "import/attr_reader.hpp"
#include "ir/attrs.hpp"
#include "ir/op_kinds.hpp"

namespace tpu::compiler::frontend {

// num_cores = replicas * partitions; partition p of replica r is core r * partitions + p.
struct CoreCounts {
  int64_t num_cores = 1;
  int64_t replicas = 1;
  int64_t partitions = 1;
};

class ShardingReader;

// `meshes`: those that the program names, for groups along axes. Null: there are no such groups.
Attrs convert_attrs(Kind kind, const OpReader& op, const CoreCounts& cores,
                    const ShardingReader* meshes = nullptr);

// What the property `precision_config` says of the two operands; unchanged if it says nothing.
void precisions(const OpReader& op, Precision& lhs, Precision& rhs);

}  // namespace tpu::compiler::frontend
