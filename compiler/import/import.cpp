// Ties the readers, the normaliser and the verifier together.
#include "import/import.hpp"

#include <algorithm>
#include <array>

#include "import/bytecode.hpp"
#include "import/file.hpp"
#include "import/hlo/converter.hpp"
#include "import/hlo/read_module.hpp"
#include "import/manual_parts.hpp"
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

Module import_hlo(std::span<const std::byte> program, const std::string& name,
                  const ImportOptions& options) {
  const hlo::HloModule read = hlo::read_hlo_module(program);
  bytecode::RawModule raw = hlo::to_raw(read, options.replicas, options.partitions);
  frontend::outline_manual_parts(raw, options.partitions);
  Module module = frontend::normalise(raw, name.empty() ? name_of(raw) : name, options);
  verify(module);
  return module;
}

// MLIR bytecode begins with "ML", a byte that is no text, and "R".
bool is_bytecode(std::span<const std::byte> program) {
  constexpr std::array kMagic = {std::byte{'M'}, std::byte{'L'}, std::byte{0xef}, std::byte{'R'}};
  return program.size() >= kMagic.size() &&
         std::equal(kMagic.begin(), kMagic.end(), program.begin());
}

// The module is named after the file.
template <typename Import>
Module of_file(const std::string& path, std::span<const std::byte> bytes, Import import) {
  try {
    return import(bytes, program_name(path), ImportOptions{});
  } catch (const Error& e) {
    if (e.loc() != nullptr) {
      throw;
    }
    throw Error(path + ": " + e.what());  // no source line says what it is about
  }
}

}  // namespace

Module import_vhlo(std::span<const std::byte> artifact, const std::string& name,
                   const ImportOptions& options) {
  bytecode::RawModule raw = bytecode::read_bytecode(artifact);
  bytecode::to_vhlo_form(raw);
  frontend::flatten_tuples(raw);
  frontend::outline_manual_parts(raw, options.partitions);
  Module module = frontend::normalise(raw, name.empty() ? name_of(raw) : name, options);
  verify(module);
  return module;
}

Module import_vhlo_file(const std::string& path) {
  return of_file(path, read_file(path), import_vhlo);
}

bool is_hlo(std::span<const std::byte> program) {
  return !is_bytecode(program) && hlo::is_hlo_module(program);
}

Module import_program(std::span<const std::byte> program, const std::string& name,
                      const ImportOptions& options) {
  return is_hlo(program) ? import_hlo(program, name, options) : import_vhlo(program, name, options);
}

Module import_program_file(const std::string& path) {
  return import_program_file(path, read_file(path));
}

Module import_program_file(const std::string& path, std::span<const std::byte> bytes) {
  return of_file(path, bytes, import_program);
}

}  // namespace tpu::compiler
