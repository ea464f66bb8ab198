// What tpuc writes: files, whole or not at all, and the table of passes.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "pass/pass_log.hpp"

namespace tpu::compiler {

// An error leaves what was there before (file/output_file.hpp). Devices and pipes are written as
// they are. Throws Error with the path and the system's reason.
void write_file(const std::string& path, std::span<const std::byte> bytes);

// Where the executable of a program goes if nobody says: "a/tanh.mlirbc" -> "tanh.tpuexe", in the
// current folder.
std::string default_output(const std::string& program);

// Passes as a table: runs, time, size before and behind, what was made, why it gave up.
std::string to_text(const PassReport& report);

}  // namespace tpu::compiler
