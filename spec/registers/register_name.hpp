// Names of registers, as docs/registers.md has them: "seq.STATE", and "hostdma.START[2]" where a
// block has several. For people: nothing that the board does looks at names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tpu/spec/registers.hpp"

namespace tpu::spec {

/// What is no name and no address; says what there is instead.
class RegisterNameError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Of 32 bits, decimal or hexadecimal behind 0x; none: the text is no such number.
std::optional<uint32_t> number_of(std::string_view text);

/// Of a register at that address of `registers`; "0x40000ffc" where there is none.
std::string register_name(std::span<const RegisterInfo> registers, uint32_t address);

/// The address on a control hart's bus that a name (in capitals or not) or a number (decimal, or
/// behind 0x) means; a multiple of 4. Throws RegisterNameError.
uint32_t hart_address(std::string_view text);

}  // namespace tpu::spec
