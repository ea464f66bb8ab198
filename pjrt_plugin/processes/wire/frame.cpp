#include "processes/wire/frame.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string>

#include "file/crc32c.hpp"
#include "processes/wire/frame_check.hpp"
#include "tpu/error.hpp"

namespace tpu::pjrt {
namespace {

constexpr uint32_t kMagic = 0x50555054;  // "TPUP"
// Limits of the verifier: tables inside of tables, and tables in all.
constexpr unsigned kMostDepth = 8;
constexpr unsigned kMostTables = 1U << 20;

[[noreturn]] void refuse(const std::string& text) {
  throw driver::Error(driver::ErrorCode::kInternal,
                      "a frame from another process is damaged: " + text);
}

uint32_t word(std::span<const std::byte> bytes, size_t index) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) {
    value = value << 8 | std::to_integer<uint32_t>(bytes[4 * index + i]);
  }
  return value;
}

void put_word(std::vector<std::byte>& to, uint32_t value) {
  for (unsigned shift = 0; shift < 32; shift += 8) {
    to.push_back(static_cast<std::byte>(value >> shift & 0xff));
  }
}

}  // namespace

FrameHead read_frame_head(std::span<const std::byte> head) {
  if (head.size() != kFrameHeadBytes || word(head, 0) != kMagic) {
    refuse("its head does not begin with the magic number");
  }
  if (word(head, 1) != kProtocolVersion) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                        fmt::format("another process speaks version {} of the protocol, this one "
                                    "version {}; use one tpuboard in all processes",
                                    word(head, 1), kProtocolVersion));
  }
  const FrameHead read{word(head, 2), word(head, 3)};
  if (read.bytes == 0 || read.bytes > kMostFrameBytes) {
    refuse(fmt::format("{} bytes; expected 1 to {}", read.bytes, kMostFrameBytes));
  }
  return read;
}

wire::FrameT read_frame(const FrameHead& head, std::span<const std::byte> payload) {
  if (payload.size() != head.bytes || spec::crc32c(payload) != head.crc) {
    refuse("its checksum does not match");
  }
  // FlatBuffers need an aligned buffer.
  std::vector<uint64_t> aligned((payload.size() + 7) / 8);
  std::memcpy(aligned.data(), payload.data(), payload.size());
  const auto* data = reinterpret_cast<const uint8_t*>(aligned.data());
  flatbuffers::Verifier verifier(data, payload.size(), kMostDepth, kMostTables);
  if (!wire::VerifyFrameBuffer(verifier) || !is_aligned(*wire::GetFrame(data))) {
    refuse("its structure");
  }
  constexpr size_t kMostListed =
      2 * kMostFrameBytes;  // of objects that are larger than in the frame
  if (const size_t listed = listed_bytes(*wire::GetFrame(data)); listed > kMostListed) {
    refuse(fmt::format("its lists have {} bytes; expected {} at most", listed, kMostListed));
  }
  wire::FrameT frame;
  wire::GetFrame(data)->UnPackTo(&frame);
  if (frame.body.value == nullptr) {
    refuse(fmt::format("a body of the unknown kind {}", static_cast<int>(frame.body.type)));
  }
  return frame;
}

std::vector<std::byte> write_frame(const wire::FrameT& frame) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(wire::Frame::Pack(builder, &frame));
  const std::span payload(reinterpret_cast<const std::byte*>(builder.GetBufferPointer()),
                          builder.GetSize());
  if (payload.size() > kMostFrameBytes) {
    throw driver::Error(driver::ErrorCode::kResourceExhausted,
                        fmt::format("a call of {} bytes to the process that has the board; it "
                                    "takes {} at most",
                                    payload.size(), kMostFrameBytes));
  }
  std::vector<std::byte> bytes;
  bytes.reserve(kFrameHeadBytes + payload.size());
  put_word(bytes, kMagic);
  put_word(bytes, kProtocolVersion);
  put_word(bytes, static_cast<uint32_t>(payload.size()));
  put_word(bytes, spec::crc32c(payload));
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

}  // namespace tpu::pjrt
