// Programs of several replicas, as a program of one shard_map. Private to the import.
#pragma once

#include "import/op_attrs.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler::frontend {

// Makes of the program of one replica that of all: replicas are one more axis of the mesh, the
// major one, and every argument and result gets a dimension in front, an entry a replica. Of groups
// of cores nothing changes: they count all cores already (process_groups.hpp).
// `same`, by argument of main: those of which all replicas are given the same. Where a replica has
// one core they keep their dimensions, and so do the results that take their memory: each core has
// a copy, as of replicated arrays of other programs. Who says so of an argument that is updated
// says it of the new value.
void add_replicas(Module& module, const CoreCounts& cores, const std::vector<bool>& same);

}  // namespace tpu::compiler::frontend
