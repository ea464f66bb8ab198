// Programs as files: .tpuexe as they are, .mlirbc and .hlo.pb through the compiler.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "cli/compile_file.hpp"
#include "exe/executable.hpp"
#include "tpu/board.hpp"

namespace tpu::driver {

/// Bytes of an executable for the board of `options`. Throws Error.
std::vector<std::byte> program_bytes(const std::string& path, const OpenOptions& options);
/// The same with what the compiler found out; of an executable nothing. `data_parallel` is for an
/// artifact, as in compile_file().
CompiledFile program_file(const std::string& path, const OpenOptions& options,
                          const std::vector<size_t>& data_parallel = {});

/// Loads the executable that came from the file `path`, which errors name. `as_run`: `tpuboard run`
/// makes the same of that file.
Executable load_program(const Board& board, const std::string& path,
                        std::span<const std::byte> executable, int device = 0, bool as_run = true);

/// The executable that came from the file `path`, which errors name. Throws Error.
exe::ExecutableT parsed_program(std::span<const std::byte> executable, const std::string& path);

/// What a program says of itself before it is compiled or loaded. Throws Error.
compiler::ProgramInterface program_interface(const std::string& path);

/// Listing of an executable: header, parameters, slots, ops, then the code as assembly text. Throws
/// Error.
std::string program_listing(const std::string& path);

/// What a program takes, gives and costs, without its code. Throws Error.
nlohmann::ordered_json program_figures(const std::string& path);

}  // namespace tpu::driver
