// What a process says of itself before it may use the board of another one, and what must agree.
#pragma once

#include <string>

#include "processes/place.hpp"
#include "processes/wire/frame.hpp"

namespace tpu::pjrt {

/// Of this process.
wire::HelloT hello_of_process(const ProcessPlace& place);

/// Throws driver::Error (FailedPrecondition) with both values when `guest` has another library,
/// board, number of processes or options than the process that has the board.
void check_greeting(const wire::HelloT& guest, const wire::HelloT& host);

/// "process 3 (pid 1234: python3 train.py)"
std::string process_text(const wire::HelloT& process);

}  // namespace tpu::pjrt
