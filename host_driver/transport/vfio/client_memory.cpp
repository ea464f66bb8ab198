#include "transport/vfio/client_memory.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace tpu::driver::vfio {
namespace {

constexpr uint64_t kMostSpanBytes = uint64_t{1} << 30;  // of a copy; the board asks for less
// A span is used before the next ones are taken.
constexpr size_t kKeptCopies = 4;

}  // namespace

std::span<std::byte> ClientMemory::abort() {
  aborted_();
  return {};
}

bool ClientMemory::is_there(uint64_t iova, uint64_t bytes, bool write) {
  flush();
  if (permitted_() && ranges_.pieces(iova, bytes, write, [](const DmaRanges::Piece&) {})) {
    return true;
  }
  aborted_();
  return false;
}

std::span<std::byte> ClientMemory::span(uint64_t iova, uint64_t bytes, bool write) {
  flush();
  if (!permitted_()) {
    return abort();
  }
  if (const std::span<std::byte> here = ranges_.together(iova, bytes, write);
      here.data() != nullptr) {
    return here;
  }
  if (bytes == 0) {
    static std::byte nothing{};
    return {&nothing, 0};
  }
  if (bytes > kMostSpanBytes ||
      !ranges_.pieces(iova, bytes, write, [](const DmaRanges::Piece&) {})) {
    return abort();
  }
  if (!write) {
    return gather(iova, bytes);
  }
  written_.push_back({iova, std::vector<std::byte>(bytes)});
  return written_.back().bytes;
}

std::span<std::byte> ClientMemory::gather(uint64_t iova, uint64_t bytes) {
  if (read_.size() == kKeptCopies) {
    read_.pop_front();
  }
  std::vector<std::byte>& all = read_.emplace_back(bytes);
  bool good = true;
  ranges_.pieces(iova, bytes, false, [&](const DmaRanges::Piece& piece) {
    const std::span<std::byte> to = std::span(all).subspan(piece.address - iova, piece.bytes);
    if (piece.data != nullptr) {
      std::copy_n(piece.data, piece.bytes, to.begin());
    } else {
      good = good && far_.read(piece.address, to);
    }
  });
  return good ? std::span(all) : abort();
}

void ClientMemory::flush() {
  for (const Written& each : std::exchange(written_, {})) {
    // The client may poll for a completion, which comes behind what it tells of.
    std::atomic_thread_fence(std::memory_order_release);
    bool good = true;
    const std::span<const std::byte> from(each.bytes);
    good = ranges_.pieces(each.iova, from.size(), true, [&](const DmaRanges::Piece& piece) {
      const auto part = from.subspan(piece.address - each.iova, piece.bytes);
      if (piece.data != nullptr) {
        std::copy(part.begin(), part.end(), piece.data);
      } else {
        good = good && far_.write(piece.address, part);
      }
    }) && good;
    if (!good) {
      aborted_();
    }
  }
}

}  // namespace tpu::driver::vfio
