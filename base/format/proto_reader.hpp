// Reads the wire format of protocol buffers, for programs and options that others write, in
// libraries that must not bring a protobuf library of their own into a process that has another one
// (the PJRT plugin). What the fields mean is the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace tpu::spec {

/// The bytes are no protocol buffer: what() says why, without a place.
class ProtoError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum ProtoWire : uint32_t {
  kProtoVarint = 0,
  kProtoFixed64 = 1,
  kProtoBytes = 2,
  kProtoFixed32 = 5
};

struct ProtoField {
  uint32_t number = 0;
  uint32_t wire = 0;
  uint64_t value = 0;      // of a varint, or the bits of a fixed size
  std::string_view bytes;  // of a length-delimited one: they lie in what is read
};

/// Every read past the end is a ProtoError; nothing is allocated.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : left_(bytes) {}

  /// The next field; nothing at the end.
  std::optional<ProtoField> next() {
    if (left_.empty()) {
      return std::nullopt;
    }
    const uint64_t tag = varint();
    if (tag >> 3 == 0 || tag >> 3 > kMostNumber) {
      throw ProtoError("a field has an invalid number: expected 1 to 2^29 - 1");
    }
    ProtoField field{static_cast<uint32_t>(tag >> 3), static_cast<uint32_t>(tag & 7), 0, {}};
    switch (field.wire) {
      case kProtoVarint:
        field.value = varint();
        break;
      case kProtoFixed64:
        field.value = fixed(8);
        break;
      case kProtoBytes:
        field.bytes = take(varint());
        break;
      case kProtoFixed32:
        field.value = fixed(4);
        break;
      default:
        throw ProtoError("a field has an invalid wire type: expected 0, 1, 2 or 5");
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
    throw ProtoError("a varint has more than 64 bits");
  }

 private:
  static constexpr uint64_t kMostNumber = (uint64_t{1} << 29) - 1;

  uint64_t fixed(size_t count) {
    const std::string_view bytes = take(count);
    uint64_t value = 0;
    for (size_t i = count; i-- > 0;) {
      value = value << 8 | static_cast<unsigned char>(bytes[i]);
    }
    return value;
  }

  std::string_view take(uint64_t count) {
    if (count > left_.size()) {
      throw ProtoError("the bytes end inside a field");
    }
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }

  std::string_view left_;
};

}  // namespace tpu::spec
