// Framing of TFRecord files: length (u64), masked CRC-32C of the length, the record, masked CRC-32C
// of the record; all little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tpu::input {

inline constexpr uint64_t kRecordHeaderBytes = 12;
inline constexpr uint64_t kRecordFooterBytes = 4;

/// A checksum of data that hold checksums says little, so it is rotated and moved.
uint32_t masked_crc32c(std::span<const std::byte> bytes);

/// The record's length; false when the checksum of the length is wrong. `header`:
/// kRecordHeaderBytes.
bool read_record_header(std::span<const std::byte> header, uint64_t& length);

/// `framed`: the record and its checksum.
bool record_is_whole(std::span<const std::byte> framed);

/// Appends one framed record.
void append_record(std::vector<std::byte>& file, std::span<const std::byte> record);

}  // namespace tpu::input
