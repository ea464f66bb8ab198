// The compiler's library behind a cache of executables.
#include "compiled_program.hpp"

#include <openssl/sha.h>

#include <array>

#include "compile.hpp"
#include "process_board.hpp"
#include "program_cache.hpp"
#include "tpu/error.hpp"

namespace tpu::client {
namespace {

// MLIR bytecode begins so; text is refused with a hint.
constexpr std::array kBytecodeMagic = {std::byte{'M'}, std::byte{'L'}, std::byte{0xef},
                                       std::byte{'R'}};

void check_format(std::span<const std::byte> artifact) {
  if (artifact.size() < kBytecodeMagic.size() ||
      !std::equal(kBytecodeMagic.begin(), kBytecodeMagic.end(), artifact.begin())) {
    throw driver::Error(driver::ErrorCode::kUnimplemented,
                        "the program is not MLIR bytecode: textual MLIR is not read; send a "
                        "StableHLO portable artifact (stablehlo.serialize_portable_artifact)");
  }
}

// `call` of the compiler, with its errors as those of the driver.
template <typename Call>
auto of_compiler(Call call) {
  try {
    return call();
  } catch (const compiler::HbmExhausted& error) {
    throw driver::Error(driver::ErrorCode::kResourceExhausted, error.what());
  } catch (const compiler::Unsupported& error) {
    throw driver::Error(driver::ErrorCode::kUnimplemented, error.what());
  } catch (const compiler::Error& error) {
    throw driver::Error(error.op().empty() ? driver::ErrorCode::kInvalidArgument
                                           : driver::ErrorCode::kUnimplemented,
                        error.what());
  }
}

compiler::Compiled compiled(std::span<const std::byte> artifact, const std::vector<int>& cores) {
  // Every core keeps all of a replicated array: a framework may read any of them.
  compiler::CompileOptions options;
  options.update_sharding = compiler::UpdateSharding::kOff;
  options.cores = cores;
  return of_compiler(
      [&] { return compiler::compile(artifact, "", ProcessBoard::params(), options); });
}

}  // namespace

std::shared_ptr<const CompiledProgram> stored_program(std::span<const std::byte> container,
                                                      std::vector<std::byte> artifact) {
  auto program = std::make_shared<CompiledProgram>();
  try {
    program->executable = std::make_shared<exe::ExecutableT>(exe::read_executable(container));
  } catch (const exe::ExecutableError& error) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument, error.what());
  }
  const std::vector<uint8_t>& cores = program->executable->cores;
  program->fingerprint =
      program_key(artifact, ProcessBoard::params(), {cores.begin(), cores.end()});
  program->artifact = std::move(artifact);
  return program;
}

// The cores that an executable must know: those of one partition, or in order, it does not.
static std::vector<int> named_cores(const std::vector<int>& cores) {
  for (size_t p = 0; p < cores.size() && cores.size() > 1; ++p) {
    if (cores[p] != static_cast<int>(p)) {
      return cores;
    }
  }
  return {};
}

std::shared_ptr<const CompiledProgram> compile_program(std::span<const std::byte> artifact,
                                                       const std::vector<int>& cores) {
  const std::vector<int> named = named_cores(cores);
  check_format(artifact);
  const ClientOptions& options = ProcessBoard::options();
  auto program = std::make_shared<CompiledProgram>();
  program->artifact.assign(artifact.begin(), artifact.end());
  program->fingerprint = program_key(artifact, ProcessBoard::params(), named);
  const ProgramCache cache(options.cache ? options.cache_folder : std::string());
  if (auto kept = cache.find(program->fingerprint)) {
    program->executable = std::make_shared<exe::ExecutableT>(std::move(*kept));
    return program;
  }
  compiler::Compiled made = compiled(artifact, named);
  program->moved = compiler::describe_moved(made.report.moved);
  program->executable = std::make_shared<exe::ExecutableT>(std::move(made.executable));
  cache.keep(program->fingerprint, *program->executable);
  return program;
}

std::string program_text(const CompiledProgram& program) {
  return of_compiler([&] { return compiler::core_program_text(program.artifact); });
}

}  // namespace tpu::client
