// From statuses and fault records to errors that people can read.
#pragma once

#include <string>

#include "exe/executable.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/rings.h"

namespace tpu::driver {

/// True when a completion of this status puts the core into HELD.
bool status_holds(uint16_t status, uint16_t opcode);

/// True for the statuses that a completion may have.
bool status_known(uint16_t status);

/// True when the command was refused before it changed anything.
bool status_refused(uint16_t status);

/// "NO_SLOT", ...
const char* status_name(uint16_t status);

std::shared_ptr<const Error> status_error(uint16_t status, const std::string& what, int device);

/// What a FW_TRAP record says; `place`: function and line of its mepc, or empty.
std::string trap_text(const tpu_fault_record_t& record, const std::string& place);

/// Name and source line of an op of the program; both empty for OP_NONE.
ErrorPlace op_place(const exe::ExecutableT& program, uint32_t op_id, int device);

/// What the record says, with op name and source line from the op table. `device`: where it was
/// read; `core_text`: what the core says beside the record, lines that begin with a line feed.
std::shared_ptr<const Error> fault_error(const tpu_fault_record_t& record,
                                         const exe::ExecutableT& program, int device,
                                         const std::string& stall_text,
                                         const std::string& core_text,
                                         const std::string& trap_place = {});

}  // namespace tpu::driver
