// Ties the bytecode reader, the normaliser and the verifier together.
#include "import/import.hpp"

#include <filesystem>

#include "import/bytecode.hpp"
#include "import/file.hpp"
#include "import/normalise.hpp"
#include "import/plain_form.hpp"
#include "import/tuples.hpp"
#include "ir/verify.hpp"

namespace tpu::compiler {
namespace {

std::string name_of(const bytecode::RawModule& raw) {
  for (const auto& [property, value] : raw.module.properties) {
    if (property == "sym_name" && !raw.attrs.at(value).text.empty()) {
      return std::string(raw.attrs.at(value).text);
    }
  }
  return "main";
}

}  // namespace

Module import_vhlo(std::span<const std::byte> artifact, const std::string& name,
                   const ImportOptions& options) {
  bytecode::RawModule raw = bytecode::read_bytecode(artifact);
  bytecode::to_vhlo_form(raw);
  frontend::flatten_tuples(raw);
  Module module = frontend::normalise(raw, name.empty() ? name_of(raw) : name, options);
  verify(module);
  return module;
}

Module import_vhlo_file(const std::string& path) {
  const std::vector<std::byte> bytes = read_file(path);
  try {
    return import_vhlo(bytes, std::filesystem::path(path).stem().string());
  } catch (const Error& e) {
    if (e.loc() != nullptr) {
      throw;
    }
    throw Error(path + ": " + e.what());  // no source line says what it is about
  }
}

}  // namespace tpu::compiler
