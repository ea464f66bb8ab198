// Allocation of HBM and of staging memory, with backpressure.
#include "src/transfers/board_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "check/host_room.hpp"

namespace tpu::driver {
namespace {

constexpr size_t kLargestListed = 10;
constexpr uint64_t kLargestPieceBytes = uint64_t{16} << 20;
constexpr uint64_t kPiecesInStaging = 4;  // at least: while one is moved another is filled

double gib(uint64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(uint64_t{1} << 30);
}

}  // namespace

std::shared_ptr<Allocation> BoardMemory::allocate(int device, uint64_t bytes,
                                                  const std::string& label) {
  const std::shared_ptr<DeviceMemory>& memory = devices_.at(device).memory;
  for (;;) {
    if (auto made = Allocation::make(memory, bytes, label)) {
      return made;
    }
    if (bytes <= memory->capacity() && hooks_.evict(device)) {
      continue;
    }
    // Ranges whose handles are gone come back when their last command is over.
    if (health_.broken() || devices_[device].ring.open() == 0) {
      break;
    }
    hooks_.pump();
  }
  health_.check_unbroken();
  throw Error(
      ErrorCode::kResourceExhausted,
      fmt::format("{} bytes ({:.2f} GiB) for {} do not fit into HBM: {} of {} bytes ({:.2f} of "
                  "{:.2f} GiB) are in use. Shard large arrays over several cores; delete or donate "
                  "arrays that are not needed. Largest live buffers:{}",
                  bytes, gib(bytes), label, memory->used(), memory->capacity(), gib(memory->used()),
                  gib(memory->capacity()), memory->largest(kLargestListed)),
      {.device = device, .op = {}, .source = {}});
}

void BoardMemory::need_room(uint64_t bytes, std::string_view what, std::string_view whose) {
  health_.check_unbroken();  // the call may have waited
  const auto held = bytes < kSmallHostBytes ? std::nullopt : hooks_.held_bytes();
  if (!held) {
    return;
  }
  uint64_t used = 0;
  for (const Device& device : devices_) {
    used += device.memory->used();
  }
  const uint64_t spare = *held - std::min(*held, used);
  need_host_room(bytes - std::min(bytes, spare),
                 fmt::format("{}{} on the simulated board", what, whose));
}

std::shared_ptr<StagingRange> BoardMemory::stage(uint64_t bytes) {
  for (;;) {
    if (auto range = StagingRange::make(arena_, bytes)) {
      return range;
    }
    health_.check_unbroken();
    if (bytes > arena_->staging_bytes() || !devices_.in_flight()) {
      return StagingRange::make_single(arena_, bytes);
    }
    hooks_.pump();
  }
}

std::shared_ptr<StagingRange> BoardMemory::stage_now(uint64_t bytes) {
  auto range = StagingRange::make(arena_, bytes);
  return range ? range : StagingRange::make_single(arena_, bytes);
}

uint64_t BoardMemory::piece_bytes() const {
  constexpr uint64_t kAlign = RangeAllocator::kAlign;
  return std::min(kLargestPieceBytes, arena_->staging_bytes() / kPiecesInStaging / kAlign * kAlign);
}

}  // namespace tpu::driver
