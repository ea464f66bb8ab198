// Who takes part in a collective. StableHLO numbers processes by replica and partition; which of
// the two the ids of an op name depends on its kind, channel_id and use_global_device_ids. The
// graph has cores alone: core = replica * partitions + partition. Private to the import.
#pragma once

#include "import/op_attrs.hpp"

namespace tpu::compiler::frontend {

// The groups of cores of `listed`, the rows of replica_groups without padding; no rows: all ids are
// one group. Throws Error for an id that the program does not have.
Groups process_groups(Kind kind, const OpReader& op, const Groups& listed, const CoreCounts& cores);

}  // namespace tpu::compiler::frontend
