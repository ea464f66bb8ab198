// Ties the bytecode reader, the normaliser and the verifier together.
#include "import/import.hpp"

#include <filesystem>

#include "import/bytecode.hpp"
#include "import/file.hpp"
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
  return import_vhlo(read_file(path), std::filesystem::path(path).stem().string());
}

}  // namespace tpu::compiler
