// The wire format of protocol buffers: fields of (number, type, contents), of which we know a few
// and skip the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "errors.hpp"

namespace tpu::pjrt {

enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Field {
  uint32_t number = 0;
  uint32_t wire = 0;
  uint64_t value = 0;      // of a varint
  std::string_view bytes;  // of a length-delimited one
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  std::optional<Field> next() {
    if (left_.empty()) {
      return std::nullopt;
    }
    const uint64_t tag = varint();
    Field field{static_cast<uint32_t>(tag >> 3), static_cast<uint32_t>(tag & 7), 0, {}};
    switch (field.wire) {
      case kVarint:
        field.value = varint();
        break;
      case kFixed64:
        take(8);
        break;
      case kBytes:
        field.bytes = take(varint());
        break;
      case kFixed32:
        take(4);
        break;
      default:
        throw_invalid("invalid protocol buffer: a field has an unknown wire type");
    }
    return field;
  }

  bool done() const { return left_.empty(); }

  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) {
        return value;
      }
    }
    throw_invalid("invalid protocol buffer: a number has more than 64 bits");
  }

 private:
  std::string_view take(uint64_t count) {
    if (count > left_.size()) {
      throw_invalid("a protocol buffer: the bytes end inside a field");
    }
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }

  std::string_view left_;
};

inline void put_varint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    to.push_back(static_cast<char>(value | 0x80));
  }
  to.push_back(static_cast<char>(value));
}

inline void put_number(std::string& to, uint32_t field, uint64_t value) {
  put_varint(to, field << 3 | kVarint);
  put_varint(to, value);
}

inline void put_bytes(std::string& to, uint32_t field, const std::string& bytes) {
  put_varint(to, field << 3 | kBytes);
  put_varint(to, bytes.size());
  to += bytes;
}

template <typename Numbers>
std::string packed(const Numbers& numbers) {
  std::string bytes;
  for (const auto number : numbers) {
    put_varint(bytes, static_cast<uint64_t>(number));
  }
  return bytes;
}

}  // namespace tpu::pjrt
