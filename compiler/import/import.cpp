// Ties the bytecode reader, the normaliser and the verifier together.
#include "import/import.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "import/bytecode.hpp"
#include "import/normalise.hpp"
#include "ir/verify.hpp"

namespace tpu::compiler {

Module import_vhlo(std::span<const std::byte> artifact, const std::string& name) {
  const bytecode::RawModule raw = bytecode::read_bytecode(artifact);
  Module module = frontend::normalise(raw, name);
  verify(module);
  return module;
}

Module import_vhlo_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw Error("cannot open '" + path + "'");
  }
  const std::vector<char> text((std::istreambuf_iterator<char>(file)), {});
  if (file.bad()) {
    throw Error("cannot read '" + path + "'");
  }
  return import_vhlo(std::as_bytes(std::span(text)), std::filesystem::path(path).stem().string());
}

}  // namespace tpu::compiler
