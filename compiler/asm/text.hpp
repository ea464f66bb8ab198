// Tokens and values of the assembly text, shared by assembler and disassembler.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/error.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::compiler::text {

// Sections of a vector program, in order.
inline constexpr std::string_view kSections[9] = {"pre",    "enter0", "enter1", "enter2", "body",
                                                  "leave2", "leave1", "leave0", "post"};

std::string quote(std::string_view s);  // with \" \\ \n and \xNN escapes

// What exe/code_text.hpp prints, back to values.
spec::Addr parse_address(std::string_view s);
void parse_field(const spec::FieldInfo& f, std::string_view value, std::byte* base);
uint8_t parse_flags(std::string_view s, std::span<const std::string_view> names);
spec::Wait parse_wait(std::string_view s);
spec::Signal parse_signal(std::string_view s);

int64_t parse_number(std::string_view s);  // throws Error
int64_t parse_range(std::string_view s, int64_t low, int64_t high, std::string_view what);
// 32 bits as an integer. Throws Error, which has the bits where it is written as a float.
uint32_t parse_bits(std::string_view s, std::string_view what);
int parse_register(std::string_view s, int count = 32);  // "r5"
std::vector<int64_t> parse_list(std::string_view s);
std::string parse_string(std::string_view s);
int parse_name(std::string_view s, const std::string_view* names, size_t count,
               std::string_view what);

// What to write in place of an unknown name: "; did you mean 'load'?", or all names if they are
// few.
std::string suggestion(std::string_view s, const std::vector<std::string_view>& names);

// Where in the text; both count from 1.
struct Place {
  size_t line = 0;
  size_t column = 0;
};

class PlacedError : public Error {
 public:
  PlacedError(const std::string& message, Place at) : Error(message), place_(at) {}
  Place place() const { return place_; }

 private:
  Place place_;
};

// One line cut at spaces and commas; quotes and brackets keep together, comments are left out.
// Remembers the word that was read last: an error is about that one.
class Statement {
 public:
  // Throws PlacedError.
  Statement(std::string_view line, size_t number);

  size_t size() const { return words_.size(); }
  const std::string& operator[](size_t i) const {
    read_ = i;
    return words_[i];
  }
  Place place() const { return {number_, columns_.empty() ? 1 : columns_[read_]}; }

 private:
  std::vector<std::string> words_;
  std::vector<size_t> columns_;
  size_t number_;
  mutable size_t read_ = 0;
};

template <size_t N>
int parse_name(std::string_view s, const std::array<std::string_view, N>& names,
               std::string_view what) {
  return parse_name(s, names.data(), N, what);
}

// Fields of a VpuAccess beside `addr` and `type`, which have forms of their own.
inline constexpr std::array<spec::FieldInfo, 3> kAccessFields = {{
    {"loop", spec::FieldType::kI32, 4, offsetof(spec::VpuAccess, loop)},
    {"sub", spec::FieldType::kI32, 1, offsetof(spec::VpuAccess, sub)},
    {"lane", spec::FieldType::kI32, 1, offsetof(spec::VpuAccess, lane)},
}};

}  // namespace tpu::compiler::text
