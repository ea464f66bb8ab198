// Ops that the import adds to a program with manual parts, and what is known of the program.
// Private to the import.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "import/attr_reader.hpp"
#include "import/bytecode.hpp"
#include "import/core_ops.hpp"
#include "import/raw_builder.hpp"

namespace tpu::compiler::frontend {

// An attribute that says how an array is sharded, and its name.
using Said = std::pair<std::string_view, uint32_t>;

// What is known of the module, and what is added to it.
struct ManualProgram {
  ManualProgram(bytecode::RawModule& to, int64_t partitions)
      : module(to), build(to), tables(to), core_ops(tables, to.module), devices(partitions) {}

  bytecode::RawModule& module;
  bytecode::RawBuilder build;
  const Tables tables;
  const CoreOps core_ops;
  const int64_t devices;                         // that run the program
  std::unordered_map<uint32_t, uint32_t> types;  // by value
  std::unordered_map<uint32_t, Said> arguments;  // of the program, by value
  std::set<std::string, std::less<>> names;      // of functions
  std::vector<bytecode::RawOp> made;             // functions
  size_t copies = 0;

  uint32_t type_of(uint32_t value) const { return types.at(value); }
  bool is_token(uint32_t value) const;
  uint32_t new_value(uint32_t type);
  // With a result of `type`.
  bytecode::RawOp custom_call(uint32_t loc, std::string_view target, uint32_t operand,
                              const Said& sharding, uint32_t type);
  bytecode::RawOp reshape(uint32_t loc, uint32_t operand, uint32_t type);
  // At the op.
  [[noreturn]] void fail(const bytecode::RawOp& op, const std::string& message) const;
};

bytecode::RawOp manual_op(uint32_t loc, std::string_view name);

}  // namespace tpu::compiler::frontend
