#include "transport/worker/frame.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "file/crc32c.hpp"

namespace tpu::driver::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

constexpr uint32_t kMagic = 0x57555054;  // "TPUW"
constexpr uint8_t kMore = 1;
constexpr uint8_t kDescriptor = 2;

struct Head {
  uint32_t magic;
  uint16_t version;
  uint8_t kind;
  uint8_t flags;
  uint32_t bytes;
  uint32_t crc;
  uint64_t number;
  uint64_t acknowledged;
};
static_assert(sizeof(Head) == kHeadBytes);

uint32_t checksum(Head head, std::span<const std::byte> payload) {
  head.crc = 0;
  return spec::crc32c(payload, spec::crc32c(std::as_bytes(std::span(&head, 1))));
}

Head head_of(std::span<const std::byte> bytes) {
  Head head{};
  std::memcpy(&head, bytes.data(), sizeof head);
  return head;
}

Head make_head(const Frame& frame, std::span<const std::byte> payload,
               std::span<const std::byte> rest) {
  Head head{};
  head.magic = kMagic;
  head.version = kProtocolVersion;
  head.kind = static_cast<uint8_t>(frame.kind);
  head.flags =
      static_cast<uint8_t>((frame.more ? kMore : 0) | (frame.has_descriptor ? kDescriptor : 0));
  head.bytes = static_cast<uint32_t>(payload.size() + rest.size());
  head.number = frame.number;
  head.acknowledged = frame.acknowledged;
  head.crc = spec::crc32c(rest, checksum(head, payload));
  return head;
}

}  // namespace

FrameHead read_head(std::span<const std::byte> bytes, size_t most_bytes, Frame& frame) {
  const Head head = head_of(bytes);
  if (head.magic != kMagic) {
    throw ConnectionLost("a frame does not begin with the magic number of the protocol");
  }
  if (head.version != kProtocolVersion) {
    // The first bytes of the connection had the right one: this frame is damaged.
    throw ConnectionLost(fmt::format("a frame has version {} of the protocol, the connection {}",
                                     head.version, kProtocolVersion));
  }
  if (head.kind > static_cast<uint8_t>(kLastKind) || (head.flags & ~(kMore | kDescriptor)) != 0) {
    throw ConnectionLost(fmt::format("frame {} has the unknown kind {} with flags {:#x}",
                                     head.number, head.kind, head.flags));
  }
  if (head.bytes > most_bytes) {
    throw ConnectionLost(fmt::format("frame {} has {} bytes; expected {} at most", head.number,
                                     head.bytes, most_bytes));
  }
  frame.kind = static_cast<Kind>(head.kind);
  frame.more = (head.flags & kMore) != 0;
  frame.has_descriptor = (head.flags & kDescriptor) != 0;
  frame.number = head.number;
  frame.acknowledged = head.acknowledged;
  return {head.bytes, head.crc};
}

void check_frame(const FrameHead& head, std::span<const std::byte> head_bytes,
                 std::span<const std::byte> payload) {
  if (checksum(head_of(head_bytes), payload) != head.crc) {
    throw ConnectionLost(fmt::format("frame {} is damaged: its checksum does not match",
                                     head_of(head_bytes).number));
  }
}

std::vector<std::byte> write_head(const Frame& frame, std::span<const std::byte> payload) {
  const Head head = make_head(frame, payload, {});
  const auto bytes = std::as_bytes(std::span(&head, 1));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> write_frame(const Frame& frame, std::span<const std::byte> payload,
                                   std::span<const std::byte> rest, std::vector<std::byte> reuse) {
  const Head head = make_head(frame, payload, rest);
  const auto head_bytes = std::as_bytes(std::span(&head, 1));
  std::vector<std::byte> bytes = std::move(reuse);
  bytes.clear();
  bytes.reserve(kHeadBytes + payload.size() + rest.size());
  bytes.insert(bytes.end(), head_bytes.begin(), head_bytes.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  return bytes;
}

}  // namespace tpu::driver::worker
