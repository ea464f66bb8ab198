// The same steps as tpuc, in memory.
#include "cli/compile.hpp"

#include <filesystem>

#include "asm/disassembler.hpp"
#include "board/board_loader.hpp"
#include "cli/files.hpp"
#include "cli/one_hot.hpp"
#include "codegen.hpp"
#include "import/import.hpp"
#include "legalize/legalize.hpp"
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
    compiler::Module module =
        compiler::import_vhlo(artifact, std::filesystem::path(path).stem().string());
    run_passes(module, compiler::compile_passes(), compiler::PassOptions());
    std::vector<int64_t> classes = one_hot_classes(module);
    return {exe::write_executable(compile_graph(module, params)), std::move(classes)};
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
