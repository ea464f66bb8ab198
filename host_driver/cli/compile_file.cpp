// The same steps as tpuc, in memory.
#include "cli/compile_file.hpp"

#include <filesystem>
#include <span>
#include <utility>

#include "asm/disassembler.hpp"
#include "board/board_loader.hpp"
#include "cli/train/one_hot.hpp"
#include "compile.hpp"
#include "files/digest.hpp"
#include "files/files.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {

static spec::BoardParams board_of(const std::string& board,
                                  const std::vector<std::string>& overrides) {
  try {
    return spec::load_board(board, overrides);
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
}

// Errors name the file.
template <typename Work>
static auto with_path(const std::string& path, Work work) {
  try {
    return work();
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, path + ": " + error.what());
  }
}

static compiler::Compiled compiled_for(std::span<const std::byte> artifact, const std::string& path,
                                       const spec::BoardParams& board,
                                       const compiler::CompileOptions& options) {
  return with_path(path, [&] {
    const std::string name = std::filesystem::path(path).stem().string();
    return compiler::compile(artifact, name, board, options);
  });
}

CompiledFile compile_file(const std::string& path, const std::string& board,
                          const std::vector<std::string>& overrides,
                          const std::vector<size_t>& data_parallel) {
  const std::vector<std::byte> artifact = read_file(path);
  compiler::CompileOptions options;
  options.data_parallel = data_parallel;
  const compiler::Compiled compiled =
      compiled_for(artifact, path, board_of(board, overrides), options);
  Digest source;
  source.add_bytes(artifact);
  return {source.finish(), exe::write_executable(compiled.executable),
          one_hot_classes(compiled.report.graph)};
}

WatchedFile compile_watched(const std::string& path, const std::string& board,
                            const std::vector<std::string>& overrides,
                            const std::vector<size_t>& data_parallel) {
  compiler::CompileOptions options;
  options.watch_finite = true;
  options.update_sharding = compiler::UpdateSharding::kOff;  // the whole state is watched
  options.data_parallel = data_parallel;
  compiler::Compiled compiled =
      compiled_for(read_file(path), path, board_of(board, overrides), options);
  return {exe::write_executable(compiled.executable), std::move(compiled.report.finite)};
}

compiler::ProgramInterface artifact_interface(const std::string& path) {
  const std::vector<std::byte> artifact = read_file(path);
  return with_path(path, [&] { return compiler::interface_of(artifact); });
}

int64_t board_cores(const std::string& board, const std::vector<std::string>& overrides) {
  return spec::core_count(board_of(board, overrides));
}

std::string disassemble_program(const exe::ExecutableT& program) {
  try {
    return compiler::disassemble(program);
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInvalidArgument,
                program.name + ": the code cannot be listed: " + error.what());
  }
}

}  // namespace tpu::driver
