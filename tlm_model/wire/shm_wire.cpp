// Rings, bells and futexes.
#include "wire/shm_wire.hpp"

#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "board/pod_part.hpp"
#include "socket/descriptor.hpp"
#include "sync/pause.hpp"

namespace tpu::model {
namespace {

constexpr size_t kRingBytes = spec::kPodRingBytes;
constexpr size_t kLine = 64;
constexpr int kTries = 50;  // before it sleeps

struct Bell {
  alignas(kLine) std::atomic<uint32_t> count;
  std::atomic<uint32_t> ended;   // its process sends nothing more
  std::atomic<RankSet> awaited;  // its process sleeps until one of these rings; 0: it does not
};

struct Ring {
  alignas(kLine) std::atomic<uint64_t> written;
  alignas(kLine) std::atomic<uint64_t> read;
  std::atomic<uint32_t> starved;  // the writer wants to know of room
  alignas(kLine) std::byte bytes[kRingBytes];
};
static_assert(sizeof(Bell) == spec::kPodBellBytes &&
              sizeof(Ring) == spec::kPodRingHeadBytes + spec::kPodRingBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

class ShmWire final : public Wire {
 public:
  ShmWire(uint32_t rank, uint32_t ranks, std::span<std::byte> memory)
      : rank_(rank),
        ranks_(ranks),
        bells_(reinterpret_cast<Bell*>(memory.data())),
        rings_(reinterpret_cast<Ring*>(memory.data() + sizeof(Bell) * ranks)),
        ends_(ranks),
        starved_(ranks) {}

  uint32_t rank() const override { return rank_; }
  uint32_t ranks() const override { return ranks_; }

  size_t send(uint32_t to, std::span<const std::byte> bytes) override {
    Ring& ring = ring_of(rank_, to);
    const uint64_t written = ring.written.load(std::memory_order_relaxed);
    uint64_t room = room_of(ring, written);
    if (room < bytes.size()) {
      ring.starved.store(1, std::memory_order_seq_cst);
      room = room_of(ring, written);
    }
    starved_[to] = room < bytes.size();
    const size_t count = std::min<uint64_t>(room, bytes.size());
    if (count != 0) {
      const size_t at = written % kRingBytes;
      const size_t first = std::min(count, kRingBytes - at);
      std::memcpy(ring.bytes + at, bytes.data(), first);
      std::memcpy(ring.bytes, bytes.data() + first, count - first);
      ring.written.store(written + count, std::memory_order_seq_cst);
      strike(bells_[to], rank_bit(rank_));
    }
    return count;
  }

  size_t receive(uint32_t from, std::span<std::byte> bytes) override {
    Ring& ring = ring_of(from, rank_);
    const uint64_t read = ring.read.load(std::memory_order_relaxed);
    const uint64_t there = ring.written.load(std::memory_order_acquire) - read;
    if (there > kRingBytes) {
      throw PodLost("the shared memory of the wires was damaged");
    }
    const size_t count = std::min<uint64_t>(there, bytes.size());
    if (count == 0) {
      return 0;
    }
    const size_t at = read % kRingBytes;
    const size_t first = std::min(count, kRingBytes - at);
    std::memcpy(bytes.data(), ring.bytes + at, first);
    std::memcpy(bytes.data() + first, ring.bytes, count - first);
    ring.read.store(read + count, std::memory_order_seq_cst);
    if (ring.starved.load(std::memory_order_seq_cst) != 0 &&
        ring.starved.exchange(0, std::memory_order_seq_cst) != 0) {
      strike(bells_[from], kAllRanks);
    }
    return count;
  }

  // The writer reads `awaited` after its write; the waiter sets it before it reads the rings. So
  // one of them sees the other.
  void wait(std::chrono::milliseconds limit, RankSet from) override {
    for (int look = 0; look < kTries; ++look) {
      if (has_come(from)) {
        return;
      }
      base::pause_processor();
    }
    Bell& bell = bells_[rank_];
    const uint32_t seen = bell.count.load(std::memory_order_seq_cst);
    // The own bit, which nobody strikes with, for room alone.
    bell.awaited.store(from | rank_bit(rank_), std::memory_order_seq_cst);
    if (has_come(from)) {
      bell.awaited.store(0, std::memory_order_relaxed);
      return;
    }
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
    const timespec time{seconds.count(), std::chrono::nanoseconds(limit - seconds).count()};
    const long woken = ::syscall(SYS_futex, &bell.count, FUTEX_WAIT, seen, &time, nullptr, 0);
    const bool late = woken != 0 && errno == ETIMEDOUT;
    bell.awaited.store(0, std::memory_order_relaxed);
    if (late) {
      find_ended();
    }
  }

  void end() override {
    bells_[rank_].ended.store(1, std::memory_order_seq_cst);
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      strike(bells_[rank], kAllRanks);
    }
  }

  void set_pid(uint32_t rank, int pid) override {
    ends_[rank] = base::Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    pids_.resize(ranks_);
    pids_[rank] = pid;
    if (!ends_[rank].valid() && errno == ESRCH) {
      lose(rank);
    }
  }

 private:
  static uint64_t room_of(const Ring& ring, uint64_t written) {
    const uint64_t used = written - ring.read.load(std::memory_order_seq_cst);
    if (used > kRingBytes) {
      throw PodLost("the shared memory of the wires was damaged");
    }
    return kRingBytes - used;
  }

  static void strike(Bell& bell, RankSet who) {
    if ((bell.awaited.load(std::memory_order_seq_cst) & who) != 0) {
      bell.count.fetch_add(1, std::memory_order_seq_cst);
      ::syscall(SYS_futex, &bell.count, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
  }

  // Bytes of one of them, or room.
  bool has_come(RankSet from) const {
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      if (rank == rank_) {
        continue;
      }
      const Ring& in = ring_of(rank, rank_);
      if ((from & rank_bit(rank)) != 0 &&
          in.written.load(std::memory_order_seq_cst) != in.read.load(std::memory_order_relaxed)) {
        return true;
      }
      if (starved_[rank] && ring_of(rank_, rank).starved.load(std::memory_order_seq_cst) == 0) {
        return true;
      }
    }
    return false;
  }

  // Nobody rings for a process that was killed.
  void find_ended() {
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      pollfd look{ends_[rank].number(), POLLIN, 0};
      if ((rank != rank_ && bells_[rank].ended.load() != 0) ||
          (ends_[rank].valid() && ::poll(&look, 1, 0) == 1)) {
        // What it has sent before is still good: it may have been its last word.
        const Ring& ring = ring_of(rank, rank_);
        if (ring.written.load() == ring.read.load()) {
          lose(rank);
        }
      }
    }
  }

  [[noreturn]] void lose(uint32_t rank) {
    const std::string pid =
        rank < pids_.size() ? "process " + std::to_string(pids_[rank]) + " " : std::string();
    throw PodLost(pid + "(rank " + std::to_string(rank) + " of " + std::to_string(ranks_) +
                  ") has ended");
  }

  Ring& ring_of(uint32_t from, uint32_t to) const { return rings_[size_t{from} * ranks_ + to]; }

  const uint32_t rank_;
  const uint32_t ranks_;
  Bell* const bells_;
  Ring* const rings_;
  std::vector<base::Descriptor> ends_;  // readable when the process has ended
  std::vector<int> pids_;
  std::vector<bool> starved_;  // by rank: there was no room for all
};

}  // namespace

std::unique_ptr<Wire> make_shm_wire(uint32_t rank, uint32_t ranks, std::span<std::byte> memory) {
  if (rank >= ranks || memory.size() < spec::pod_memory_bytes(ranks)) {
    throw std::invalid_argument("the shared memory of the wires has " +
                                std::to_string(memory.size()) + " bytes, expected " +
                                std::to_string(spec::pod_memory_bytes(ranks)));
  }
  return std::make_unique<ShmWire>(rank, ranks, memory);
}

}  // namespace tpu::model
