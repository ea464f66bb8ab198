// Programs of several replicas, as a program of one shard_map. Private to the import.
#pragma once

#include "import/op_attrs.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler::frontend {

// Makes of the program of one replica that of all: replicas are one more axis of the mesh, the
// major one, and every argument and result gets a dimension in front, an entry a replica. Of groups
// of cores nothing changes: they count all cores already (process_groups.hpp).
void add_replicas(Module& module, const CoreCounts& cores);

}  // namespace tpu::compiler::frontend
