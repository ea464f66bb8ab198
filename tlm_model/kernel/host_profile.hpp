// Where the host's time goes: counters by kind of work, of the whole process (it has one board).
// Off unless asked for; then two clock readings a piece of work, from microseconds to milliseconds
// long.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tpu::model {

enum class HostWork : uint8_t {
  kMxu,        // commands of the matrix units, packing included
  kMxuPack,    // of these: operands rounded and packed
  kMxuAgain,   // of what is packed: what another part or command packs, too
  kMxuShared,  // beside that: what another part or command had packed
  kVpu,
  kTranspose,
  kDmaIn,
  kDeferred,  // of these: deferred, so that readers find the bytes in HBM
  kDmaOut,
  kShared,  // of these: bytes that another core writes too, in pages that they share
  kDmaRemote,
  kFill,
  kDmaIndexed,
  kHostDma,   // kernel thread: uploads and downloads
  kPages,     // kernel thread: HBM pages found, made, unshared for a transfer
  kHart,      // kernel thread: instructions of the control harts
  kChecker,   // kernel thread: --check
  kLaunch,    // kernel thread: commands handed to other threads
  kJoinWork,  // kernel thread: work of the kinds above, done while it waits for a command
  kJoinWait,  // kernel thread: waiting for other threads to finish a command
  kBoard,     // kernel thread: all of its time
};
inline constexpr size_t kHostWorks = static_cast<size_t>(HostWork::kBoard) + 1;

struct HostWorkInfo {
  std::string_view name;
  std::string_view unit;  // of `amount`
};
inline constexpr std::array<HostWorkInfo, kHostWorks> kHostWorkInfo = {
    {{"mxu", "flop"},      {"mxu_pack", "B"},  {"mxu_again", "B"},  {"mxu_shared", "B"},
     {"vpu", "op"},        {"transpose", "B"}, {"dma_in", "B"},     {"deferred", "B"},
     {"dma_out", "B"},     {"shared", "B"},    {"dma_remote", "B"}, {"fill", "B"},
     {"dma_indexed", "B"}, {"host_dma", "B"},  {"pages", "B"},      {"hart", ""},
     {"checker", ""},      {"launch", ""},     {"join_work", ""},   {"join_wait", ""},
     {"board", ""}}};

struct HostWorkCounter {
  uint64_t nanoseconds = 0;  // summed over threads
  uint64_t count = 0;
  uint64_t amount = 0;
  uint64_t bytes = 0;  // read and written, of kinds whose amount is something else
};

class HostProfile {
 public:
  using Counters = std::array<HostWorkCounter, kHostWorks>;

  static void enable() { enabled_.store(true, std::memory_order_relaxed); }
  static bool enabled() { return enabled_.load(std::memory_order_relaxed); }
  static void add(HostWork kind, uint64_t nanoseconds, uint64_t amount, uint64_t bytes);
  // Of work that was left out.
  static void count(HostWork kind, uint64_t amount) {
    if (enabled()) {
      add(kind, 0, amount, 0);
    }
  }
  static Counters read();

 private:
  static inline std::atomic<bool> enabled_{false};
};

// Counts its own life.
class HostTimer {
 public:
  explicit HostTimer(HostWork kind, uint64_t amount = 0, uint64_t bytes = 0)
      : kind_(kind), amount_(amount), bytes_(bytes), on_(HostProfile::enabled()) {
    if (on_) {
      start_ = Clock::now();
    }
  }
  ~HostTimer() {
    if (on_) {
      HostProfile::add(kind_, nanoseconds(), amount_, bytes_);
    }
  }
  HostTimer(const HostTimer&) = delete;
  HostTimer& operator=(const HostTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  uint64_t nanoseconds() const {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count());
  }
  const HostWork kind_;
  const uint64_t amount_;
  const uint64_t bytes_;
  const bool on_;
  Clock::time_point start_;
};

}  // namespace tpu::model
