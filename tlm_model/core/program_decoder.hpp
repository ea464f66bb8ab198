// Decoding of single instructions and commands into the records of program.hpp.
#pragma once

#include <array>
#include <cstdint>

#include "core/overlap.hpp"
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
  void check_header(const spec::CommandHeader& head, DecodedCommand& command) const;
  void check_dma_spaces(DecodedCommand& command, const DmaPlan& plan) const;
  // Marks a command bad that alone takes longer than the watchdog.
  void check_cycles(DecodedCommand& command, __int128 cycles) const;
  // Marks a command bad whose destination writes a byte twice.
  void check_repeats(DecodedCommand& command, const StridePattern& written) const;
  void check_box(DecodedCommand& command, const std::array<uint32_t, 5>& counts,
                 const std::array<int64_t, 5>& dst_strides, uint32_t elem_bytes) const;
  void add_operand(DecodedCommand& command, const spec::Addr& address) const;
  const VpuProgram* vpu_program(uint32_t offset);

  Program& program_;
  const spec::BoardParams params_;
  const spec::MxuShape shape_;
};

}  // namespace tpu::model
