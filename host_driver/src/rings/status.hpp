// Statuses of completions: what they mean for the core, and as errors that people can read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tpu/error.hpp"

namespace tpu::driver {

/// True when a completion of this status puts the core into HELD.
bool status_holds(uint16_t status, uint16_t opcode);

/// True for the statuses that a completion may have.
bool status_known(uint16_t status);

/// True when the command was refused before it changed anything.
bool status_refused(uint16_t status);

/// True when data of the host did not get through to the chip: the command can be sent again.
bool status_of_link(uint16_t status);

/// "NO_SLOT", ...
const char* status_name(uint16_t status);

std::shared_ptr<const Error> status_error(uint16_t status, const std::string& what, int device);

}  // namespace tpu::driver
