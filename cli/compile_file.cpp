// The same steps as tpuc, in memory.
#include "cli/compile_file.hpp"

#include <filesystem>
#include <span>
#include <utility>

#include "asm/disassembler.hpp"
#include "board/board_loader.hpp"
#include "cli/train/one_hot.hpp"
#include "entry/compile.hpp"
#include "file/files.hpp"
#include "format/digest.hpp"
#include "import/file.hpp"
#include "terminal/text_bar.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {

namespace {

spec::BoardParams board_of(const std::string& board, const std::vector<std::string>& overrides) {
  try {
    return spec::load_board(board, overrides);
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
}

// Errors name the file.
template <typename Work>
auto with_path(const std::string& path, Work work) {
  try {
    return work();
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, path + ": " + error.what());
  }
}

struct Source {
  std::vector<std::byte> artifact;
  compiler::Compiled compiled;
};

// With a bar where that takes long.
Source compile_source(const std::string& path, const std::string& board,
                      const std::vector<std::string>& overrides, compiler::CompileOptions options) {
  const std::filesystem::path file(path);
  spec::TextBar bar("compile " + file.filename().string(), spec::kLongSeconds);
  options.progress = [&](const std::string& stage, double done) { bar.share(done, stage); };
  std::vector<std::byte> artifact = read_file(path);
  const spec::BoardParams params = board_of(board, overrides);
  return with_path(path, [&] {
    compiler::Compiled compiled =
        compiler::compile(artifact, compiler::program_name(path), params, options);
    return Source{std::move(artifact), std::move(compiled)};
  });
}

}  // namespace

CompiledFile compile_file(const std::string& path, const std::string& board,
                          const std::vector<std::string>& overrides,
                          const std::vector<size_t>& data_parallel) {
  compiler::CompileOptions options;
  options.data_parallel = data_parallel;
  const Source source = compile_source(path, board, overrides, options);
  Digest digest;
  digest.add_bytes(source.artifact);
  return {digest.finish(), exe::write_executable(source.compiled.executable),
          one_hot_classes(source.compiled.report.graph)};
}

WatchedFile compile_watched(const std::string& path, const std::string& board,
                            const std::vector<std::string>& overrides,
                            const std::vector<size_t>& data_parallel) {
  compiler::CompileOptions options;
  options.watch_finite = true;
  options.update_sharding = compiler::UpdateSharding::kOff;  // the whole state is watched
  options.data_parallel = data_parallel;
  Source source = compile_source(path, board, overrides, options);
  return {exe::write_executable(source.compiled.executable),
          std::move(source.compiled.report.finite)};
}

std::vector<std::byte> compile_kept(const std::string& path, const std::string& board,
                                    const std::vector<std::string>& overrides) {
  compiler::CompileOptions options;
  options.keep_values = true;
  return exe::write_executable(compile_source(path, board, overrides, options).compiled.executable);
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
                program.name + ": the code cannot be disassembled: " + error.what());
  }
}

}  // namespace tpu::driver
