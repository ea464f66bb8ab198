// See file.hpp.
#include "import/file.hpp"

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

}  // namespace tpu::compiler
