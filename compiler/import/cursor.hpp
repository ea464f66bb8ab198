// Bounds-checked reading of MLIR bytecode primitives: bytes, varints, strings of known size.
// Every read past the end throws compiler::Error; nothing is allocated from an unchecked count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ir/error.hpp"

namespace tpu::compiler::bytecode {

class Cursor {
 public:
  Cursor() = default;
  // `what` names the section in error messages; it must outlive the cursor (a literal).
  Cursor(std::span<const std::byte> bytes, const char* what) : bytes_(bytes), what_(what) {}

  size_t left() const { return bytes_.size() - pos_; }
  bool at_end() const { return pos_ == bytes_.size(); }

  uint8_t byte() {
    need(1);
    return static_cast<uint8_t>(bytes_[pos_++]);
  }

  std::span<const std::byte> take(size_t n) {
    need(n);
    const auto out = bytes_.subspan(pos_, n);
    pos_ += n;
    return out;
  }

  // k trailing zero bits of the first byte announce k more bytes; first byte 0: 8 bytes follow.
  uint64_t varint() {
    const uint8_t first = byte();
    if (first & 1) {
      return first >> 1;
    }
    const int more = first == 0 ? 8 : __builtin_ctz(first);
    uint64_t value = 0;
    const auto rest = take(static_cast<size_t>(more));
    for (size_t i = rest.size(); i-- > 0;) {
      value = value << 8 | static_cast<uint64_t>(rest[i]);
    }
    return first == 0 ? value : (value << 8 | first) >> (more + 1);
  }

  int64_t svarint() {
    const uint64_t v = varint();
    return static_cast<int64_t>((v >> 1) ^ (~(v & 1) + 1));
  }

  // A varint whose low bit is a flag.
  uint64_t flagged(bool& flag) {
    const uint64_t v = varint();
    flag = (v & 1) != 0;
    return v >> 1;
  }

  // A count of things that take at least one byte each.
  size_t count() { return checked(varint()); }
  size_t checked(uint64_t n) const {
    if (n > left()) {
      fail("a count of " + std::to_string(n) + " is larger than the rest of the section");
    }
    return static_cast<size_t>(n);
  }

  // An index into a table of `size` entries.
  uint32_t index(size_t size, const char* table) {
    const uint64_t i = varint();
    if (i >= size) {
      fail("index " + std::to_string(i) + " is outside of a table of " + std::to_string(size) +
           " " + table);
    }
    return static_cast<uint32_t>(i);
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw Error("the artifact is damaged: " + message + " (" + what_ + ", byte " +
                std::to_string(pos_) + ")");
  }

 private:
  void need(size_t n) const {
    if (n > left()) {
      fail("it ends too early");
    }
  }

  std::span<const std::byte> bytes_;
  size_t pos_ = 0;
  const char* what_ = "";
};

}  // namespace tpu::compiler::bytecode
