// See file.hpp.
#include "import/file.hpp"

#include <filesystem>

#include "file/whole_file.hpp"
#include "ir/error.hpp"

namespace tpu::compiler {

std::vector<std::byte> read_file(const std::string& path) {
  try {
    return spec::read_whole_file(path);
  } catch (const spec::FileError& error) {
    throw Error(error.what());
  }
}

bool is_program_file(const std::string& path) {
  return path.ends_with(".mlirbc") || path.ends_with(".hlo.pb");
}

std::string program_name(const std::string& path) {
  const std::filesystem::path name = std::filesystem::path(path).stem();
  return (name.extension() == ".hlo" ? name.stem() : name).string();
}

}  // namespace tpu::compiler
