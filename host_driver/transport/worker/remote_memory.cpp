#include "transport/worker/remote_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "tpu/error.hpp"

namespace tpu::driver::worker {
namespace {

constexpr uint64_t kMostRangeBytes = uint64_t{1} << 30;  // that the board asks for at a time
constexpr size_t kMostRanges = 16;
// A span is used before the next one is taken.
constexpr size_t kKeptReads = 4;
constexpr size_t kMostSpareRooms = 4;

}  // namespace

void RemoteMemory::map(uint64_t iova, uint64_t bytes, base::Descriptor file) {
  if (ranges_.size() == kMostRanges || bytes > kMostMappedBytes - mapped_bytes_) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("the program shares {} bytes of host memory beside {} bytes; a worker "
                            "maps {} at most, in {} ranges: use a smaller "
                            "OpenOptions::staging_bytes",
                            bytes, mapped_bytes_, kMostMappedBytes, kMostRanges));
  }
  const auto behind = ranges_.lower_bound(iova);
  const bool free_behind = behind == ranges_.end() || behind->first - iova >= bytes;
  const bool free_before = behind == ranges_.begin() || std::prev(behind)->second.bytes().size() <=
                                                            iova - std::prev(behind)->first;
  if (iova + bytes < iova || !free_behind || !free_before) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("host memory at {:#x} of {} bytes overlaps another range", iova, bytes));
  }
  ranges_.emplace(iova, base::SharedMemory::map(std::move(file), bytes));
  mapped_bytes_ += bytes;
}

std::span<std::byte> RemoteMemory::mapped(uint64_t iova, uint64_t bytes) {
  const auto behind = ranges_.upper_bound(iova);
  if (behind == ranges_.begin()) {
    return {};
  }
  const auto& [base, memory] = *std::prev(behind);
  const uint64_t at = iova - base;
  const std::span<std::byte> all = memory.bytes();
  return at <= all.size() && bytes <= all.size() - at ? all.subspan(at, bytes)
                                                      : std::span<std::byte>();
}

std::span<std::byte> RemoteMemory::first_of(Room& room, uint64_t bytes) {
  if (room.size() < bytes) {
    room.resize(bytes);
  }
  return std::span(room).first(bytes);
}

void RemoteMemory::flush() {
  for (Written& each : written_) {
    for (std::span<const std::byte> rest = each.bytes; !rest.empty();) {
      const std::span<const std::byte> piece = rest.first(std::min(rest.size(), kPieceBytes));
      channel_.post_joined(Kind::kDmaWrite, std::as_bytes(std::span(&each.iova, 1)), piece);
      each.iova += piece.size();
      rest = rest.subspan(piece.size());
    }
  }
  for (Written& each : written_) {
    if (spare_.size() < kMostSpareRooms) {
      spare_.push_back(std::move(each.room));
    }
  }
  written_.clear();
}

Message RemoteMemory::ask(const Range& range, std::span<std::byte> place) {
  flush();
  channel_.post(Kind::kDmaRead, pack(range));
  before_();
  bool interrupted = false;
  try {
    for (;;) {
      Message message = channel_.receive(place);
      if (message.kind == Kind::kDmaData) {
        behind_(interrupted);
        return message;
      }
      interrupted = true;
      if (message.kind != Kind::kInterrupt) {
        refuse_message("expected the bytes of a transfer");
      }
    }
  } catch (const std::exception& error) {
    lose(error.what());
    behind_(true);
    return {};
  }
}

bool RemoteMemory::is_there(uint64_t iova, uint64_t bytes, bool write) {
  if (bytes == 0 || mapped(iova, bytes).data() != nullptr) {
    return true;
  }
  if (!trouble_.empty() || bytes > kMostRangeBytes) {
    return false;
  }
  const Message answer = ask({iova, bytes, write, true}, {});
  return trouble_.empty() && answer.bytes.size() == 1 && answer.bytes[0] == std::byte{1};
}

std::span<std::byte> RemoteMemory::span(uint64_t iova, uint64_t bytes, bool write) {
  if (const std::span<std::byte> here = mapped(iova, bytes); here.data() != nullptr) {
    return here;
  }
  if (bytes == 0) {
    static std::byte nothing{};
    return {&nothing, 0};
  }
  if (!trouble_.empty() || bytes > kMostRangeBytes) {
    return {};
  }
  if (write) {
    if (!is_there(iova, bytes, true)) {
      return {};
    }
    Written made{iova, {}, {}};
    if (!spare_.empty()) {
      made.room = std::move(spare_.back());
      spare_.pop_back();
    }
    made.bytes = first_of(made.room, bytes);
    written_.push_back(std::move(made));
    return written_.back().bytes;
  }
  Room room;
  if (read_.size() == kKeptReads) {
    room = std::move(read_.front());
    read_.pop_front();
  }
  const std::span<std::byte> place = first_of(room, bytes);
  const Message answer = ask({iova, bytes, false, false}, place);
  read_.push_back(std::move(room));
  return answer.placed == bytes && answer.bytes.empty() ? place : std::span<std::byte>();
}

}  // namespace tpu::driver::worker
