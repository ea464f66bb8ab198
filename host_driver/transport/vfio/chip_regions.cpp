#include "transport/vfio/chip_regions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tpu/spec/chip_page_regs.hpp"
#include "tpu/spec/core_page_regs.hpp"
#include "transport/vfio/requests.hpp"

namespace tpu::driver::vfio {
namespace {

namespace chip_page = spec::chip_page;
namespace core_page = spec::core_page;

constexpr uint64_t kMostRegisterBytes = 4096;             // of one access
constexpr uint64_t kMostCyclesAhead = uint64_t{1} << 32;  // that a client lets pass at once

uint64_t region_bytes(uint32_t region) {
  switch (region) {
    case kBar0Region:
      return chip_page::kBar0Bytes;
    case kBar2Region:
      return core_page::kBar2Bytes;
    case kConfigRegion:
      return ConfigSpace::kBytes;
    default:
      return 0;
  }
}

void check_access(const RegionAccess& access) {
  const uint64_t size = region_bytes(access.region);
  const uint64_t most = access.region == kBar0Region ? kMostRegisterBytes : kMostDataBytes;
  if (access.count == 0 || access.count > most) {
    throw Rejected(EINVAL, fmt::format("{} bytes of region {}: expected 1 to {}", access.count,
                                       access.region, most));
  }
  if (access.offset > size || access.count > size - access.offset) {
    throw Rejected(EINVAL, fmt::format("{} bytes at {:#x} of region {}, which has {}", access.count,
                                       access.offset, access.region, size));
  }
}

}  // namespace

ChipRegions::ChipRegions(FunctionBoard& board, int chip, PciId id)
    : board_(board), chip_(chip), config_(id, chip_page::kBar0Bytes, core_page::kBar2Bytes) {}

std::vector<std::byte> ChipRegions::info(Bytes payload) {
  auto info = sized<RegionInfo>(payload);
  if (info.index >= kRegions) {
    throw Rejected(EINVAL, fmt::format("region {}: expected 0 to {}", info.index, kRegions - 1));
  }
  info.argsz = sizeof info;
  info.size = region_bytes(info.index);
  info.flags = info.size == 0 ? 0 : RegionInfo::kRead | RegionInfo::kWrite;
  info.cap_offset = 0;
  info.offset = 0;
  return vector_of(info);
}

std::vector<std::byte> ChipRegions::read(Bytes payload) {
  const auto access = exactly<RegionAccess>(payload);
  check_access(access);
  settle();
  std::vector<std::byte> reply = vector_of(access);
  reply.resize(sizeof access + access.count, std::byte{0xFF});
  const std::span<std::byte> data = std::span(reply).subspan(sizeof access);
  if (access.region == kConfigRegion) {
    read_config(access.offset, data);
  } else if (!config_.memory_space()) {
    config_.note_unsupported();
  } else if (access.region == kBar0Region) {
    read_registers(access.offset, data);
  }
  return reply;
}

void ChipRegions::read_config(uint64_t offset, std::span<std::byte> to) {
  if (offset + to.size() > ConfigSpace::kClock) {
    config_.set_clock(board_.quiet, board_.transport->now());
  }
  config_.read(offset, to);
}

void ChipRegions::read_registers(uint64_t offset, std::span<std::byte> to) {
  for (size_t done = 0; done < to.size();) {
    const uint64_t at = offset + done;
    const uint64_t word = at / sizeof(uint32_t) * sizeof(uint32_t);
    board_.quiet = false;
    const uint32_t value = board_.transport->read32(chip_, 0, word);
    const size_t skip = at - word;
    const size_t count = std::min(sizeof value - skip, to.size() - done);
    std::memcpy(to.data() + done, reinterpret_cast<const char*>(&value) + skip, count);
    done += count;
  }
}

std::vector<std::byte> ChipRegions::write(Bytes payload) {
  const auto access = beginning<RegionAccess>(payload);
  write_part(access, payload.subspan(sizeof access));
  return vector_of(access);
}

void ChipRegions::write_part(const RegionAccess& access, Bytes data) {
  check_access(access);
  if (data.size() != access.count) {
    throw Rejected(EINVAL, fmt::format("{} bytes of data: expected {}", data.size(), access.count));
  }
  if (access.region == kBar2Region && config_.memory_space()) {
    load(access.offset, data);
    return;
  }
  settle();
  if (access.region == kConfigRegion) {
    write_config(access.offset, data);
  } else if (!config_.memory_space()) {
    config_.note_unsupported();
  } else {
    write_registers(access.offset, data);
  }
}

void ChipRegions::load(uint64_t offset, Bytes data) {
  if (offset != load_offset_ + loads_.size() || offset % kLoadBytes == 0) {
    settle();
    load_offset_ = offset;
  }
  loads_.insert(loads_.end(), data.begin(), data.end());
}

void ChipRegions::settle() {
  if (!loads_.empty()) {
    board_.quiet = false;
    board_.transport->write_block(chip_, 2, load_offset_, loads_);
    loads_.clear();
  }
}

std::vector<std::byte> ChipRegions::write_many(Bytes payload) {
  const uint64_t count =
      payload.size() >= sizeof(ManyWrites) ? read_struct<ManyWrites>(payload).count : 0;
  const Bytes writes = payload.subspan(std::min(payload.size(), sizeof(ManyWrites)));
  if (count == 0 || writes.size() % sizeof(ManyWrites::Write) != 0 ||
      writes.size() / sizeof(ManyWrites::Write) != count) {
    throw Rejected(EINVAL, fmt::format("{} writes in {} bytes: expected at least one, of {} each",
                                       count, writes.size(), sizeof(ManyWrites::Write)));
  }
  for (uint64_t i = 0; i < count; ++i) {
    const auto write =
        read_struct<ManyWrites::Write>(writes.subspan(i * sizeof(ManyWrites::Write)));
    if (write.access.count > sizeof write.data) {
      throw Rejected(EINVAL, fmt::format("write {} of {} bytes: expected 1 to {}", i,
                                         write.access.count, sizeof write.data));
    }
    write_part(write.access, Bytes(write.data).first(write.access.count));
  }
  return {payload.begin(), payload.begin() + sizeof(ManyWrites)};
}

void ChipRegions::write_config(uint64_t offset, Bytes data) {
  config_.write(offset, data);
  const auto has = [&](size_t byte) { return offset <= byte && byte - offset < data.size(); };
  constexpr size_t kByte = ConfigSpace::kDeviceControl + 1;  // has the bit for a reset
  if (has(kByte) &&
      (data[kByte - offset] & std::byte{ConfigSpace::kFunctionReset >> 8}) != std::byte{0}) {
    reset();
  }
  // A kernel writes words, the upper one last.
  if (has(ConfigSpace::kClockUntil + sizeof(uint64_t) - 1)) {
    board_.until = std::min(config_.clock_until(), board_.transport->now() + kMostCyclesAhead);
    board_.quiet = false;
  }
}

void ChipRegions::write_registers(uint64_t offset, Bytes data) {
  board_.quiet = false;
  if (offset % sizeof(uint32_t) != 0 || data.size() % sizeof(uint32_t) != 0) {
    config_.note_unsupported();
    board_.transport->write_block(chip_, 0, offset, data);  // the chip counts it
    return;
  }
  std::vector<RegisterWrite> writes;
  for (size_t at = 0; at < data.size(); at += sizeof(uint32_t)) {
    writes.push_back({chip_, 0, offset + at, read_struct<uint32_t>(data.subspan(at))});
  }
  board_.transport->write32_many(writes);
}

void ChipRegions::reset() {
  settle();
  config_.reset();
  board_.quiet = false;
  board_.until = 0;
  board_.transport->write32(chip_, 0, chip_page::kChipReset, 1);
  // The answer comes behind all that the chip has posted: nothing of it reaches the next client.
  board_.transport->read32(chip_, 0, chip_page::kMagic);
}

}  // namespace tpu::driver::vfio
