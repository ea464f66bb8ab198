// Decoding of single instructions and commands into the records of program.hpp.
#pragma once

#include <array>
#include <cstdint>

#include "core/program.hpp"

namespace tpu::model {

class ProgramDecoder {
 public:
  ProgramDecoder(Program& program, const spec::BoardParams& params);

  // The item at a word inside the code; adds to the program's commands and VPU programs.
  ProgramItem decode_item(uint32_t word);

 private:
  void decode_command(uint32_t word, DecodedCommand& command);
  void decode_body(const spec::CommandHeader& head, const std::byte* bytes,
                   DecodedCommand& command);
  void decode_matmul(const spec::MatmulCommand& c, DecodedCommand& command);
  void decode_vpu(const std::byte* bytes, DecodedCommand& command);
  void decode_transpose(const spec::TransposeCommand& c, DecodedCommand& command);
  void decode_dma(const spec::DmaCommand& c, DecodedCommand& command);
  void decode_fill(const spec::FillCommand& c, DecodedCommand& command);
  void decode_indexed(const spec::DmaIndexedCommand& c, DecodedCommand& command);
  // Sets what is wrong with a command; false: it is, or there is nothing to do.
  template <typename C>
  bool begin(const C& c, DecodedCommand& command) const;
  const VpuProgram* vpu_program(uint32_t offset);

  Program& program_;
  const spec::BoardParams params_;
  const spec::MxuShape shape_;
};

}  // namespace tpu::model
