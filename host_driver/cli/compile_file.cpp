// The same steps as tpuc, in memory.
#include "cli/compile_file.hpp"

#include <filesystem>

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

CompiledFile compile_file(const std::string& path, const std::string& board,
                          const std::vector<std::string>& overrides) {
  const std::vector<std::byte> artifact = read_file(path);
  const spec::BoardParams params = board_of(board, overrides);
  try {
    const compiler::Compiled compiled =
        compiler::compile(artifact, std::filesystem::path(path).stem().string(), params);
    Digest source;
    source.add_bytes(artifact);
    return {source.finish(), exe::write_executable(compiled.executable),
            one_hot_classes(compiled.report.graph)};
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, path + ": " + error.what());
  }
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
