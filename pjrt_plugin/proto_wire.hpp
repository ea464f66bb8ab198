// The wire format of protocol buffers at the interface: reading with the interface's errors, and
// writing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "errors.hpp"
#include "format/proto_reader.hpp"

namespace tpu::pjrt {

using Field = spec::ProtoField;
constexpr uint32_t kVarint = spec::kProtoVarint, kBytes = spec::kProtoBytes;

/// spec::ProtoReader, whose errors are the caller's.
class Reader {
  template <typename Read>
  static auto checked(const Read& read) {
    try {
      return read();
    } catch (const spec::ProtoError& error) {
      throw_invalid(std::string("invalid protocol buffer: ") + error.what());
    }
  }

 public:
  explicit Reader(std::string_view bytes) : reader_(bytes) {}

  std::optional<Field> next() {
    return checked([&] { return reader_.next(); });
  }
  uint64_t varint() {
    return checked([&] { return reader_.varint(); });
  }
  bool done() const { return reader_.done(); }

 private:
  spec::ProtoReader reader_;
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
