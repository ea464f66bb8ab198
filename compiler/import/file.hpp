// Files of programs, for the import and for commands: their names and their bytes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tpu::compiler {

// Throws Error with the path and the reason ("x: is a folder; name a file").
std::vector<std::byte> read_file(const std::string& path);

// True of files that the compiler reads, by their names: .mlirbc (StableHLO) and .hlo.pb (HLO).
bool is_program_file(const std::string& path);

// What the program of a file is called: "a/tanh.mlirbc" and "a/tanh.hlo.pb" -> "tanh".
std::string program_name(const std::string& path);

}  // namespace tpu::compiler
