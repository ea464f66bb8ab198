// What XProf's memory viewer reads of a program: its memory in HBM, as an HloProto. Field numbers:
// xla/service/hlo.proto and xla/xla_data.proto of the XLA project.
#pragma once

#include <cstdint>
#include <string>

#include "exe/executable.hpp"

namespace tpu::model {

// Instructions are the parameters, constants and results, and the entries of the op table under the
// names that their events have (op_event_name); what an operation holds in more than one temporary
// has more of them. Operands are not told: an executable does not know them.
std::string hlo_proto(const exe::ExecutableT& executable, uint64_t program_id);

// "dot_general.7"
std::string op_event_name(const exe::ExecutableT* executable, uint32_t op_id);
// "dot_general"; "op 7" where nothing names it.
std::string op_name(const exe::ExecutableT* executable, uint32_t op_id);

}  // namespace tpu::model
