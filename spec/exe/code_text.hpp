// Statements of a core program as text, in the form of docs/assembler.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tpu/spec/isa.hpp"

namespace tpu::exe {

struct ExecutableT;

// Of one value of a field.
size_t scalar_bytes(spec::FieldType type);
bool is_signed(spec::FieldType type);

// Values of fields.
std::string print_address(const spec::Addr& a);  // "hbm[3]+64+r5", "vmem+0", "none+12"
bool field_is_zero(const spec::FieldInfo& f, const std::byte* base);
std::string print_field(const spec::FieldInfo& f, const std::byte* base);  // arrays are "[a,b]"
// Joined by '+': "accumulate+rhs_transposed"; bits without a name, or all of them, as a number.
std::string print_flags(uint8_t flags, std::span<const std::string_view> names);
std::string print_wait(const spec::Wait& w);      // "3:1:take"
std::string print_signal(const spec::Signal& s);  // "3:1", "3:1:r2" when remote

// Null: no command has this opcode.
const spec::CommandInfo* command_info(uint8_t opcode);

// "blt r5, r6, L12". The opcode must be one of spec::kScalarInsns.
std::string print_scalar(const spec::ScalarInsn& insn);
// "dma_in.dma op=0 signal=0:1 src=..": the command at `base`, which is as long as its opcode says.
// `program`: name of its VPU program.
std::string print_command(const std::byte* base, const spec::CommandInfo& info,
                          std::string_view program);

struct CodeLine {
  uint32_t word = 0;
  std::string text{};
};

// The statement of the core program at `word`, with up to `around` before it and behind it. Empty
// where none begins at that word. Texts are those of a listing.
std::vector<CodeLine> code_around(const ExecutableT& executable, uint32_t word, size_t around);

}  // namespace tpu::exe
