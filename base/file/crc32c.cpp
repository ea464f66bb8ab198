// Two ways to the same number: tables (slicing by eight), and the instruction of SSE 4.2, which
// takes three streams at once since one waits three cycles for its own result. The streams are
// joined by a table that says what the zeros of a stream's length make of a checksum.
#include "file/crc32c.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tpu::spec {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78u;

constexpr std::array<std::array<uint32_t, 256>, 8> make_tables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    }
    tables[0][i] = crc;
  }
  for (uint32_t i = 0; i < 256; ++i) {
    for (size_t k = 1; k < 8; ++k) {
      tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 0xFF];
    }
  }
  return tables;
}

constexpr auto kTables = make_tables();

uint64_t word_at(const std::byte* at) {
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

// `state` is the inverted checksum throughout.
uint32_t add_by_tables(std::span<const std::byte> data, uint32_t state) {
  while (data.size() >= 8) {
    const uint64_t word = word_at(data.data()) ^ state;
    state = 0;
    for (size_t k = 0; k < 8; ++k) {
      state ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
    }
    data = data.subspan(8);
  }
  for (const std::byte value : data) {
    state = (state >> 8) ^ kTables[0][(state ^ static_cast<uint32_t>(value)) & 0xFF];
  }
  return state;
}

#if defined(__x86_64__)
constexpr size_t kLongStream = 4096;  // bytes, by three: large records
constexpr size_t kShortStream = 256;

// What `bytes` zeros make of a state, by byte of the state: it is linear in the state's bits.
using ZerosTable = std::array<std::array<uint32_t, 256>, 4>;

ZerosTable make_zeros_table(size_t bytes) {
  std::array<uint32_t, 32> of_bit{};
  for (size_t bit = 0; bit < of_bit.size(); ++bit) {
    uint32_t state = uint32_t{1} << bit;
    for (size_t i = 0; i < bytes; ++i) {
      state = (state >> 8) ^ kTables[0][state & 0xFF];
    }
    of_bit[bit] = state;
  }
  ZerosTable table{};
  for (size_t byte = 0; byte < 4; ++byte) {
    for (size_t value = 0; value < 256; ++value) {
      for (size_t bit = 0; bit < 8; ++bit) {
        table[byte][value] ^= (value >> bit & 1) != 0 ? of_bit[byte * 8 + bit] : 0;
      }
    }
  }
  return table;
}

uint64_t over_zeros(const ZerosTable& table, uint64_t state) {
  return table[0][state & 0xFF] ^ table[1][state >> 8 & 0xFF] ^ table[2][state >> 16 & 0xFF] ^
         table[3][state >> 24 & 0xFF];
}

// Takes from `data` what three streams of `length` bytes can.
[[gnu::target("sse4.2")]] uint64_t add_streams(std::span<const std::byte>& data, uint64_t state,
                                               size_t length, const ZerosTable& zeros) {
  while (data.size() >= 3 * length) {
    uint64_t second = 0;
    uint64_t third = 0;
    const std::byte* at = data.data();
    for (const std::byte* end = at + length; at != end; at += 8) {
      state = _mm_crc32_u64(state, word_at(at));
      second = _mm_crc32_u64(second, word_at(at + length));
      third = _mm_crc32_u64(third, word_at(at + 2 * length));
    }
    state = over_zeros(zeros, over_zeros(zeros, state) ^ second) ^ third;
    data = data.subspan(3 * length);
  }
  return state;
}

[[gnu::target("sse4.2")]] uint32_t add_by_instruction(std::span<const std::byte> data,
                                                      uint32_t state32) {
  static const ZerosTable long_zeros = make_zeros_table(kLongStream);
  static const ZerosTable short_zeros = make_zeros_table(kShortStream);
  uint64_t state = add_streams(data, state32, kLongStream, long_zeros);
  state = add_streams(data, state, kShortStream, short_zeros);
  for (; data.size() >= 8; data = data.subspan(8)) {
    state = _mm_crc32_u64(state, word_at(data.data()));
  }
  auto narrow = static_cast<uint32_t>(state);
  for (const std::byte value : data) {
    narrow = _mm_crc32_u8(narrow, static_cast<uint8_t>(value));
  }
  return narrow;
}
#endif

}  // namespace

uint32_t crc32c_portable(std::span<const std::byte> data, uint32_t crc) {
  return ~add_by_tables(data, ~crc);
}

uint32_t crc32c(std::span<const std::byte> data, uint32_t crc) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) {
    return ~add_by_instruction(data, ~crc);
  }
#endif
  return crc32c_portable(data, crc);
}

}  // namespace tpu::spec
