// Graphs through the compiler's library: the command links it, the driver's library does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "entry/compile.hpp"
#include "exe/executable.hpp"
#include "instrument/finite_watch.hpp"

namespace tpu::driver {

struct CompiledFile {
  std::string source_sha256;  ///< of the artifact; empty: an executable, which does not tell it
  std::vector<std::byte> executable;
  std::vector<int64_t> one_hot_classes;  ///< of each argument, see one_hot.hpp; 0: not known
};

/// Compiles a program (compiler::is_program_file) for a board; `data_parallel` as in
/// CompileOptions. Throws Error (InvalidArgument) with the compiler's text.
CompiledFile compile_file(const std::string& path, const std::string& board,
                          const std::vector<std::string>& overrides,
                          const std::vector<size_t>& data_parallel = {});

/// The same program with one more result, see finite_watch.hpp.
struct WatchedFile {
  std::vector<std::byte> executable;
  compiler::FiniteWatch watch;
};
WatchedFile compile_watched(const std::string& path, const std::string& board,
                            const std::vector<std::string>& overrides,
                            const std::vector<size_t>& data_parallel);

/// The same program with what each op makes as results, see kept_values.hpp. Throws as
/// compile_file().
std::vector<std::byte> compile_kept(const std::string& path, const std::string& board,
                                    const std::vector<std::string>& overrides);

/// What an artifact says of itself. Throws as compile_file().
compiler::ProgramInterface artifact_interface(const std::string& path);

/// Cores of a board. Throws Error (InvalidArgument).
int64_t board_cores(const std::string& board, const std::vector<std::string>& overrides);

/// Assembly text of a program. Throws Error (InvalidArgument).
std::string disassemble_program(const exe::ExecutableT& program);

}  // namespace tpu::driver
