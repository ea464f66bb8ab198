// Writes the wire format of protocol buffers, for files of foreign formats that the board fills at
// full speed, and in libraries that must not bring a protobuf library of their own into a process
// that has another one (the PJRT plugin). Field numbers are the caller's.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tpu::spec {

class ProtoWriter {
 public:
  void number(uint32_t field, uint64_t value) {
    varint(uint64_t{field} << 3);
    varint(value);
  }
  void fixed64(uint32_t field, uint64_t value) {
    varint(uint64_t{field} << 3 | 1);
    for (int shift = 0; shift < 64; shift += 8) {
      bytes_.push_back(static_cast<char>(value >> shift));
    }
  }
  void real(uint32_t field, double value) { fixed64(field, std::bit_cast<uint64_t>(value)); }
  void text(uint32_t field, std::string_view value) {
    varint(uint64_t{field} << 3 | 2);
    varint(value.size());
    bytes_ += value;
  }
  // A message of what `fill` writes. Most are short: their length takes a byte. Others are moved.
  template <class Fill>
  void message(uint32_t field, const Fill& fill) {
    varint(uint64_t{field} << 3 | 2);
    const size_t at = bytes_.size();
    bytes_.push_back(0);
    fill();
    const size_t size = bytes_.size() - at - 1;
    if (size < 0x80) {
      bytes_[at] = static_cast<char>(size);
      return;
    }
    std::array<char, kMostVarint> length{};
    bytes_.replace(at, 1, length.data(), encode(size, length));
  }

  const std::string& bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }
  std::string take() { return std::move(bytes_); }

 private:
  static constexpr size_t kMostVarint = 10;

  static size_t encode(uint64_t value, std::array<char, kMostVarint>& to) {
    size_t size = 0;
    for (; value >= 0x80; value >>= 7) {
      to[size++] = static_cast<char>(value | 0x80);
    }
    to[size++] = static_cast<char>(value);
    return size;
  }
  void varint(uint64_t value) {
    std::array<char, kMostVarint> to{};
    bytes_.append(to.data(), encode(value, to));
  }

  std::string bytes_;
};

}  // namespace tpu::spec
