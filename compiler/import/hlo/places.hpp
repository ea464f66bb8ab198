// OpMetadata and stack frames as locations of the import: the name of the framework's operation and
// the lines of the program; else the instruction and its computation. Private to the import.
#pragma once

#include <vector>

#include "import/hlo/hlo_module.hpp"
#include "import/raw_builder.hpp"

namespace tpu::compiler::hlo {

class Places {
 public:
  Places(const HloModule& module, bytecode::RawBuilder& build)
      : stack_(module.stack), build_(build), frames_(stack_.frames.size() + 1, bytecode::kNone) {}

  uint32_t loc(const Instruction& at, const Computation& of);
  // Of a parameter or one of its members: its name alone.
  uint32_t name_of(const Instruction& parameter, size_t member);

 private:
  uint32_t file_loc(std::string_view file, int64_t line, int64_t column);
  uint32_t name_loc(uint32_t text, uint32_t inner);
  uint32_t frame(int64_t id);
  uint32_t unknown();

  const StackFrames& stack_;
  bytecode::RawBuilder& build_;
  std::vector<uint32_t> frames_;  // by id, with their callers
  uint32_t unknown_ = bytecode::kNone;
};

}  // namespace tpu::compiler::hlo
