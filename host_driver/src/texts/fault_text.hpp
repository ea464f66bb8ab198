// From fault records to errors that people can read.
#pragma once

#include <memory>
#include <string>

#include "exe/executable.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/rings.h"

namespace tpu::driver {

/// What a FW_TRAP record says; `place`: function and line of its mepc, or empty.
std::string trap_text(const tpu_fault_record_t& record, const std::string& place);

/// Name and source line of an op of the program; both empty for OP_NONE.
ErrorPlace op_place(const exe::ExecutableT& program, uint32_t op_id, int device);

/// Of HBM_ECC: the word belongs to the program, that is to its code or a constant.
bool lost_of_program(const tpu_fault_record_t& record, const exe::ExecutableT& program);

/// What the record says, with op name and source line from the op table. `device`: where it was
/// read; `core_text`: what the core says beside the record, lines that begin with a line feed.
std::shared_ptr<const Error> fault_error(const tpu_fault_record_t& record,
                                         const exe::ExecutableT& program, int device,
                                         const std::string& stall_text,
                                         const std::string& core_text,
                                         const std::string& trap_place = {});

}  // namespace tpu::driver
