#include "input/records/record_format.hpp"

#include <bit>
#include <cstring>

#include "file/crc32c.hpp"

namespace tpu::input {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename Number>
Number number_at(std::span<const std::byte> bytes, size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

template <typename Number>
void append_number(std::vector<std::byte>& file, Number number) {
  const auto bytes = std::as_bytes(std::span(&number, 1));
  file.insert(file.end(), bytes.begin(), bytes.end());
}

}  // namespace

uint32_t masked_crc32c(std::span<const std::byte> bytes) {
  constexpr uint32_t kMove = 0xA282EAD8u;
  return std::rotr(spec::crc32c(bytes), 15) + kMove;
}

bool read_record_header(std::span<const std::byte> header, uint64_t& length) {
  length = number_at<uint64_t>(header, 0);
  return number_at<uint32_t>(header, 8) == masked_crc32c(header.first(8));
}

bool record_is_whole(std::span<const std::byte> framed) {
  const std::span<const std::byte> record = framed.first(framed.size() - kRecordFooterBytes);
  return number_at<uint32_t>(framed, record.size()) == masked_crc32c(record);
}

void append_record(std::vector<std::byte>& file, std::span<const std::byte> record) {
  const uint64_t length = record.size();
  append_number(file, length);
  append_number(file, masked_crc32c(std::as_bytes(std::span(&length, 1))));
  file.insert(file.end(), record.begin(), record.end());
  append_number(file, masked_crc32c(record));
}

}  // namespace tpu::input
