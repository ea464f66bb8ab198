// See output.hpp.
#include "cli/output.hpp"

#include <filesystem>
#include <system_error>

#include "file/output_file.hpp"
#include "ir/error.hpp"

namespace tpu::compiler {

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  try {
    spec::OutputFile file(path);
    file.add(bytes);
    file.finish();
  } catch (const std::system_error& error) {
    throw Error("cannot write '" + path + "': " + error.code().message() +
                "; nothing was written there");
  }
}

std::string default_output(const std::string& program) {
  return std::filesystem::path(program).stem().string() + ".tpuexe";
}

}  // namespace tpu::compiler
