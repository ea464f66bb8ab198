#include "transport/vfio/vfio_transport.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "board/board_loader.hpp"
#include "options/option_check.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/chip_page_regs.hpp"
#include "transport/vfio/config_space.hpp"
#include "transport/vfio/kernel_vfio.hpp"
#include "transport/vfio/pci_machine.hpp"
#include "transport/vfio/protocol.hpp"

namespace tpu::driver {
namespace {

using namespace vfio;  // NOLINT(google-build-using-namespace)
namespace chip_page = spec::chip_page;

constexpr std::string_view kUserPrefix = "vfio-user:";
constexpr std::string_view kKernelPrefix = "vfio:";
// Without an interrupt, the board is asked whether it is quiescent: soon, then less often.
constexpr std::chrono::milliseconds kFirstPause{1};
constexpr std::chrono::milliseconds kLastPause{20};

std::unique_ptr<PciMachine> open_machine(const std::string& connect) {
  if (connect.starts_with(kKernelPrefix)) {
    return open_kernel_vfio(connect.substr(kKernelPrefix.size()), linux_calls());
  }
  const std::string folder = connect.substr(kUserPrefix.size());
  if (folder.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("address '{}': expected vfio-user:FOLDER", connect));
  }
  return open_vfio_user(folder);
}

base::Descriptor make_event() {
  base::Descriptor event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event.valid()) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("no eventfd for an interrupt: {}", std::strerror(errno)));
  }
  return event;
}

void take_event(int event) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event, &count, sizeof count);
}

// What a board says of itself in the capability of its functions.
struct ClockWords {
  uint32_t flags;
  uint32_t reserved;
  uint64_t cycles;
};
static_assert(sizeof(ClockWords) == ConfigSpace::kClockCycles + 8 - ConfigSpace::kClockFlags);

class VfioTransport final : public Transport, private ArenaWatcher {
 public:
  VfioTransport(std::unique_ptr<PciMachine> machine, size_t chips, HostArena& arena)
      : machine_(std::move(machine)), arena_(arena), poll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (machine_->functions() != chips) {
      throw Error(ErrorCode::kFailedPrecondition,
                  fmt::format("there are {} PCI functions, the board has {} chips: expected all "
                              "functions of a board of OpenOptions::preset",
                              machine_->functions(), chips));
    }
    for (size_t function = 0; function < chips; ++function) {
      begin(function);
    }
    if (functions_.size() != chips || functions_.rbegin()->first + 1 != static_cast<int>(chips)) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "two PCI functions are the same chip of different boards");
    }
    watch(wake_.number(), kWakeKey);
    arena_.set_watcher(this);
  }
  VfioTransport(const VfioTransport&) = delete;
  VfioTransport& operator=(const VfioTransport&) = delete;
  ~VfioTransport() override { arena_.set_watcher(nullptr); }

  TransportStats stats() override { return {}; }

  uint32_t read32(int chip, int bar, uint64_t offset) override {
    uint32_t value = 0;
    machine_->read(functions_.at(chip), static_cast<uint32_t>(bar), offset,
                   std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  void write32(int chip, int bar, uint64_t offset, uint32_t value) override {
    const RegisterWrite write{chip, bar, offset, value};
    write32_many(std::span(&write, 1));
  }
  void write32_many(std::span<const RegisterWrite> writes) override {
    while (!writes.empty()) {
      const int chip = writes.front().chip;
      const auto end = std::ranges::find_if(
          writes, [chip](const RegisterWrite& write) { return write.chip != chip; });
      const auto count = static_cast<size_t>(end - writes.begin());
      machine_->write_words(functions_.at(chip), writes.first(count));
      writes = writes.subspan(count);
    }
  }
  void write_block(int chip, int bar, uint64_t offset, std::span<const std::byte> data) override {
    machine_->write(functions_.at(chip), static_cast<uint32_t>(bar), offset, data);
  }

  RunOutcome run() override;
  RunOutcome run_until(uint64_t cycle) override;
  void limit_run(std::chrono::nanoseconds limit) override { limit_ = limit; }
  void interrupt() override {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.number(), &one, sizeof one);
  }
  // A kernel can read the clock in words, between which the lower one begins again at 0.
  uint64_t now() override {
    const size_t function = functions_.begin()->second;
    uint64_t before = clock(function).cycles;
    for (;;) {
      const uint64_t cycles = clock(function).cycles;
      if (cycles >> kWordBits == before >> kWordBits) {
        return cycles;
      }
      before = cycles;
    }
  }

 private:
  static constexpr uint64_t kWakeKey = UINT64_MAX;
  static constexpr uint64_t kHangupVector = 63;
  static constexpr uint64_t kVectorBits = 6;
  static constexpr int kWordBits = 32;

  void begin(size_t function);
  void watch(int descriptor, uint64_t key);
  ClockWords clock(size_t function) {
    ClockWords clock{};
    machine_->read(function, kConfigRegion, ConfigSpace::kClockFlags,
                   std::as_writable_bytes(std::span(&clock, 1)));
    return clock;
  }
  bool look(std::chrono::milliseconds pause, RunOutcome& outcome);
  bool quiescent();

  // ArenaWatcher.
  void added(const SharedRange& range, std::span<std::byte> memory) override {
    machine_->map(range.iova, memory, range.file);
  }
  void removed(uint64_t iova, uint64_t bytes) noexcept override { machine_->unmap(iova, bytes); }

  std::unique_ptr<PciMachine> machine_;
  HostArena& arena_;
  std::map<int, size_t> functions_;              // by chip
  std::map<uint64_t, base::Descriptor> events_;  // by key
  base::Descriptor poll_;
  base::Descriptor wake_ = make_event();
  std::chrono::nanoseconds limit_{0};
};

void VfioTransport::watch(int descriptor, uint64_t key) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  if ((key & kHangupVector) == kHangupVector && key != kWakeKey) {
    event.events = EPOLLRDHUP;
  }
  event.data.u64 = key;
  if (::epoll_ctl(poll_.number(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("cannot wait for interrupts: {}", std::strerror(errno)));
  }
}

// A fresh function: known to be a chip, with memory space, bus mastering and interrupts.
void VfioTransport::begin(size_t function) {
  machine_->reset(function);
  uint32_t head[2] = {};
  machine_->read(function, kConfigRegion, ConfigSpace::kClock,
                 std::as_writable_bytes(std::span(head)));
  constexpr uint32_t kIdMask = 0xFFFFF;
  if ((head[1] & kIdMask) != (ConfigSpace::kClockId | ConfigSpace::kClockVersion << 16)) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("the PCI function {} is not a chip of tpuboard serve --vfio-user of "
                            "this version: its configuration space has {:#x} at {:#x}",
                            machine_->name(function), head[1], ConfigSpace::kClock + 4));
  }
  uint16_t command = 0;
  machine_->read(function, kConfigRegion, ConfigSpace::kCommand,
                 std::as_writable_bytes(std::span(&command, 1)));
  command |= ConfigSpace::kMemorySpace | ConfigSpace::kBusMaster;
  machine_->write(function, kConfigRegion, ConfigSpace::kCommand,
                  std::as_bytes(std::span(&command, 1)));
  const auto read = [&](uint64_t offset) {
    uint32_t value = 0;
    machine_->read(function, kBar0Region, offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  };
  if (read(chip_page::kMagic) != chip_page::kMagicTpub) {
    throw Error(ErrorCode::kUnavailable, fmt::format("the PCI function {} has no registers of a "
                                                     "chip in its BAR 0",
                                                     machine_->name(function)));
  }
  const auto chip = static_cast<int>(read(chip_page::kChipId) & chip_page::kChipIdIndexMask);
  functions_.emplace(chip, function);
  std::vector<int> numbers;
  for (uint64_t vector = 0; vector < chip_page::kMsiVectors; ++vector) {
    const uint64_t key = static_cast<uint64_t>(chip) << kVectorBits | vector;
    const base::Descriptor& event = events_[key] = make_event();
    numbers.push_back(event.number());
    watch(event.number(), key);
  }
  machine_->set_msi(function, numbers);
  if (const int hangup = machine_->hangup(function); hangup >= 0) {
    watch(hangup, function << kVectorBits | kHangupVector);
  }
}

// True: something has come.
bool VfioTransport::look(std::chrono::milliseconds pause, RunOutcome& outcome) {
  epoll_event events[32];
  const int count =
      ::epoll_wait(poll_.number(), events, std::size(events), static_cast<int>(pause.count()));
  for (int i = 0; i < count; ++i) {
    const uint64_t key = events[i].data.u64;
    if (key == kWakeKey) {
      take_event(wake_.number());
      outcome.expired = true;
      continue;
    }
    if ((key & kHangupVector) == kHangupVector) {
      throw Error(ErrorCode::kUnavailable,
                  fmt::format("the PCI function {} is gone", machine_->name(key >> kVectorBits)));
    }
    take_event(events_.at(key).number());
    outcome.msi.at(key >> kVectorBits) |= 1U << (key & kHangupVector);
  }
  return count > 0;
}

// All functions are asked, since each has posted writes of its own in front of the answer.
bool VfioTransport::quiescent() {
  return std::ranges::all_of(functions_, [this](const auto& function) {
    return (clock(function.second).flags & ConfigSpace::kQuiescent) != 0;
  });
}

RunOutcome VfioTransport::run() {
  RunOutcome outcome;
  outcome.msi.resize(functions_.size());
  const auto end = std::chrono::steady_clock::now() + limit_;
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLastPause)) {
    auto wait = pause;
    if (limit_.count() > 0) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      wait = std::clamp(left, std::chrono::milliseconds(0), pause);
      outcome.expired = left.count() <= 0;
    }
    if (look(wait, outcome) || outcome.expired) {
      return outcome;
    }
    if (quiescent()) {
      // An interrupt is signaled before the board is quiescent.
      outcome.quiescent = !look(std::chrono::milliseconds(0), outcome);
      return outcome;
    }
  }
}

// The board is told how long it runs although nothing is in flight.
RunOutcome VfioTransport::run_until(uint64_t cycle) {
  const auto set_target = [this](uint64_t target) {
    machine_->write(functions_.begin()->second, kConfigRegion, ConfigSpace::kClockUntil,
                    std::as_bytes(std::span(&target, 1)));
  };
  set_target(cycle);
  const RunOutcome outcome = run();
  if (outcome.expired) {
    set_target(0);  // else the next run would go on to it
  }
  return outcome;
}

void refuse_simulation_options(const OpenOptions& options) {
  for (const std::string& name : given_simulation_options(options)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: a board whose chips are PCI functions has the options of the "
                            "process that has it: give this one to tpuboard serve --vfio-user",
                            name));
  }
}

}  // namespace

bool is_vfio_address(std::string_view connect) {
  return is_vfio_user_address(connect) || connect.starts_with(kKernelPrefix);
}

bool is_vfio_user_address(std::string_view connect) { return connect.starts_with(kUserPrefix); }

std::unique_ptr<Transport> make_vfio_transport(const OpenOptions& options,
                                               const TransportRequest& request, HostArena& arena) {
  refuse_simulation_options(options);
  return make_vfio_transport(open_machine(options.connect), request.params, arena);
}

std::unique_ptr<Transport> make_vfio_transport(std::unique_ptr<PciMachine> machine,
                                               const spec::BoardParams& params, HostArena& arena) {
  return std::make_unique<VfioTransport>(std::move(machine),
                                         static_cast<size_t>(spec::chip_count(params)), arena);
}

}  // namespace tpu::driver
