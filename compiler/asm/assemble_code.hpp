// Code half of the assembler: instructions, commands and vector programs to words, with labels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "asm/text.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::compiler {

class CodeAssembler {
 public:
  // One statement in the code. Throws Error.
  void statement(const text::Statement& words);
  // Resolves labels; the code with the programs behind it. Throws PlacedError for names that stand
  // nowhere.
  std::vector<std::byte> finish();

 private:
  void label(const std::string& name);
  void vector_program(const text::Statement& words);
  void raw_word(const text::Statement& words);
  void scalar(const text::Statement& words);
  void command(const text::Statement& words);
  void access(const text::Statement& words);
  void vector_instruction(const text::Statement& words);
  void close_command();
  void put(const void* data, size_t bytes);

  struct Program {
    std::string name;
    spec::VpuProgramHeader header{};
    std::vector<spec::VpuInsn> code;
    size_t after_word = 0;  // raw words that stand before it
  };
  struct Fixup {
    size_t at;  // byte of the field
    std::string name;
    text::Place place;
  };

  std::vector<std::byte> code_;
  std::vector<std::byte> raw_;            // .word data behind the code
  std::map<std::string, size_t> labels_;  // word index
  std::vector<Fixup> branches_, uses_;    // i32 targets; u32 programs
  std::vector<Program> programs_;
  bool in_program_ = false;
  int section_ = -1;
  size_t open_ = SIZE_MAX;     // byte of a vpu_kernel that may get accesses
  text::Place program_place_;  // of the last .vpu
};

}  // namespace tpu::compiler
