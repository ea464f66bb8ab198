// PCIe endpoint: BAR decode, two ordered wires, DMA flows.
#include "pcie/pcie_endpoint.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <tuple>
#include <utility>

#include "board/board_loader.hpp"
#include "tpu/spec/chip_page_table.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::model {

namespace chip_page = spec::chip_page;
namespace core_page = spec::core_page;

namespace {
constexpr uint32_t kAllOnes = 0xFFFFFFFF;
static_assert(chip_page::kMagicReset == chip_page::kMagicTpub);
static_assert(chip_page::kHwAbiReset ==
              (chip_page::kHwAbiMajor << chip_page::kHwAbiMajorShift | chip_page::kHwAbiMinor));
}  // namespace

PcieEndpoint::PcieEndpoint(sc_core::sc_module_name name, const spec::BoardParams& params,
                           const ChipIdentity& identity, HostMemory& memory, FluidShare& share,
                           Activity& activity, const ProbeSet* probes)
    : sc_module(name),
      RegisterBlock(registers()),
      core_isock("core_isock", static_cast<size_t>(params.board.cores_per_chip)),
      params_(params),
      memory_(memory),
      share_(share),
      activity_(activity),
      probe_(probes, RegisterEvent::Block::kChipPage, identity.index),
      latency_(spec::cycles_from_ns(params, params.pcie.latency_ns)),
      down_link_(share.add_resource_gbps(params.pcie.gbps_per_chip, params.host.transfer_efficiency,
                                         params.core.clock_mhz)),
      up_link_(share.add_resource_gbps(params.pcie.gbps_per_chip, params.host.transfer_efficiency,
                                       params.core.clock_mhz)) {
  cell(chip_page::kChipId) = identity.index << chip_page::kChipIdIndexShift |
                             identity.x << chip_page::kChipIdXShift |
                             identity.y << chip_page::kChipIdYShift;
  cell(chip_page::kCores) = static_cast<uint32_t>(params.board.cores_per_chip);
  cell(chip_page::kHbmMib) = static_cast<uint32_t>(params.hbm.gib_per_core * 1024);
  cell(chip_page::kClockKhz) = static_cast<uint32_t>(params.core.clock_mhz * 1000);
  set_wide(chip_page::kBoardHashLo, chip_page::kBoardHashHi, identity.board_hash);
  SC_THREAD(downstream_thread);
  SC_THREAD(upstream_thread);
}

uint64_t PcieEndpoint::wire_cycles(uint64_t bytes) const {
  const auto per_kilocycle = static_cast<uint64_t>(params_.pcie.gbps_per_chip) * 1000 * 1000 /
                             static_cast<uint64_t>(params_.core.clock_mhz);
  return (bytes * 1000 + per_kilocycle - 1) / per_kilocycle;
}

void PcieEndpoint::host_write(int bar, uint64_t offset, std::span<const std::byte> data) {
  down_free_at_ = std::max(down_free_at_, now_cycles()) + wire_cycles(data.size());
  activity_.begin();
  down_.push_back({down_free_at_ + latency_, bar, offset, {data.begin(), data.end()}});
  down_event_.notify(sc_core::SC_ZERO_TIME);
}

uint32_t PcieEndpoint::host_read(int bar, uint64_t offset) {
  HostRead read;
  begin_read(bar, offset, read);
  wait(read.answered);
  see_answer(read);
  wait(from_cycles(*read.at - now_cycles()));
  return read.value;
}

void PcieEndpoint::begin_read(int bar, uint64_t offset, HostRead& read) {
  const uint64_t at = std::max(down_free_at_, now_cycles()) + latency_;
  read.least = at + latency_;
  activity_.begin();
  down_.push_back({at, bar, offset, {}, &read});
  down_event_.notify(sc_core::SC_ZERO_TIME);
}

// The response pushes what the device has posted so far.
void PcieEndpoint::see_answer(HostRead& read) const {
  if (read.has_value && !read.at) {
    read.at = read.least = std::max(now_cycles() + latency_, up_last_at_);
  }
}

PcieEndpoint::Coming PcieEndpoint::coming() const {
  const auto msi =
      std::ranges::find_if(up_, [](const Upstream& write) { return write.vector != kNoMsi; });
  return {.access = down_.empty() ? kNever : down_.front().at,
          .msi = msi == up_.end() ? kNever : msi->at};
}

void PcieEndpoint::visit_state(spec::Archive& archive) {
  visit_registers(archive);
  archive(down_free_at_, up_last_at_, held_, delivered_, down_, up_);
  const auto vector_ok = [](int vector) {
    return vector == kNoMsi || (vector >= 0 && vector < static_cast<int>(chip_page::kMsiVectors));
  };
  archive.need(
      is_near(down_free_at_) && is_near(up_last_at_) &&
          std::ranges::all_of(down_, [](const auto& each) { return is_near(each.at); }) &&
          std::ranges::all_of(
              up_, [&](const auto& each) { return is_near(each.at) && vector_ok(each.vector); }),
      "a packet of PCIe comes too late or has no interrupt vector");
  if (archive.loading()) {
    for (size_t i = 0; i < savable_activity(); ++i) {
      activity_.begin();
    }
    down_event_.notify(sc_core::SC_ZERO_TIME);
    up_event_.notify(sc_core::SC_ZERO_TIME);
  }
}

void PcieEndpoint::downstream_thread() {
  for (;;) {
    if (down_.empty()) {
      wait(down_event_);
      continue;
    }
    const uint64_t at = down_.front().at;
    if (at > now_cycles()) {
      wait(from_cycles(at - now_cycles()));
    }
    Downstream request = std::move(down_.front());
    down_.pop_front();
    perform(request);
    activity_.end();
  }
}

// The next access of a kind fails on purpose.
bool PcieEndpoint::meets(Upset kind) {
  auto& waiting = upsets_[static_cast<size_t>(kind)];
  if (waiting.empty()) {
    return false;
  }
  const std::function<void()> told = std::move(waiting.front());
  waiting.pop_front();
  told();
  return true;
}

void PcieEndpoint::raise_event(uint32_t event) {
  set_reg(chip_page::kEvents, reg(chip_page::kEvents) | event);
  post_msi(static_cast<int>(chip_page::kMsiChip));
}

void PcieEndpoint::ecc_read(size_t core, std::optional<uint64_t> hbm, bool corrected) {
  const auto index = static_cast<uint32_t>(core);
  if (!hbm) {
    ++(corrected ? cell(chip_page::kSramCorrected, index)
                 : cell(chip_page::kSramUncorrected, index));
    return;
  }
  const uint64_t address = *hbm;
  uint32_t& count =
      corrected ? cell(chip_page::kHbmCorrected, index) : cell(chip_page::kHbmUncorrected, index);
  ++count;
  // Which core of the chip reads first in a cycle depends on the other boards of the process.
  // Entries of one cycle are in the order of kind, core and address; nobody reads in between.
  const uint32_t end = cell(chip_page::kEccLogged)++;
  if (const uint64_t now = now_cycles(); std::exchange(ecc_cycle_, now) != now) {
    ecc_first_ = end;
  } else if (end - ecc_first_ == chip_page::kEccLogEntries) {
    ++ecc_first_;  // overwritten
  }
  const auto entry = [this](uint32_t number) {
    const uint32_t place = number % chip_page::kEccLogEntries;
    return std::tie(cell(chip_page::kEccLogHi, place), cell(chip_page::kEccLogLo, place));
  };
  const std::tuple logged((static_cast<uint32_t>(address >> 32) & chip_page::kEccLogHiAddressMask) |
                              index << chip_page::kEccLogHiCoreShift |
                              (corrected ? 0 : chip_page::kEccLogHiUncorrectedMask),
                          static_cast<uint32_t>(address));
  uint32_t at = end;
  for (; at != ecc_first_ && entry(at - 1) > logged; --at) {
    entry(at) = entry(at - 1);
  }
  entry(at) = logged;
  const uint32_t threshold = reg(chip_page::kEccCtrl) & chip_page::kEccCtrlThresholdMask;
  if (!corrected) {
    raise_event(chip_page::kEventsEccUncorrectedMask);
  } else if (threshold != 0 && count % threshold == 0) {
    raise_event(chip_page::kEventsEccCorrectedMask);
  }
}

void PcieEndpoint::link_repeats(uint32_t link, uint64_t windows) {
  cell(chip_page::kLinkCrcErrors, link) += static_cast<uint32_t>(windows);
}

void PcieEndpoint::link_changes(uint32_t link, bool down) {
  cell(chip_page::kLinkLost, link) += down ? 1 : 0;
  const uint32_t others = reg(chip_page::kLinkDown) & ~(1U << link);
  set_reg(chip_page::kLinkDown, others | (down ? 1U << link : 0));
  raise_event(down ? chip_page::kEventsLinkDownMask : chip_page::kEventsLinkUpMask);
}

void PcieEndpoint::answer(HostRead& read, uint32_t value) {
  read.value = value;
  read.has_value = true;
  read.answered.notify(sc_core::SC_ZERO_TIME);
}

void PcieEndpoint::perform(Downstream& request) {
  if (upset_ && (removed_ || (request.read != nullptr && meets(Upset::kTimeout)))) [[unlikely]] {
    if (request.read != nullptr) {
      answer(*request.read, kAllOnes);
    }
    return;
  }
  if (request.read == nullptr) {
    write_bar(request.bar, request.offset, request.data);
    return;
  }
  answer(*request.read, read_bar(request.bar, request.offset));
}

bool PcieEndpoint::core_access(size_t core, uint64_t offset, std::span<std::byte> data,
                               bool write) {
  auto* const bytes = reinterpret_cast<uint8_t*>(data.data());
  return core_bus_.perform(core_isock[core], offset, {bytes, data.size()}, write);
}

void PcieEndpoint::write_bar(int bar, uint64_t offset, std::span<std::byte> data) {
  if (bar == 2) {
    load_window(offset, data);
    return;
  }
  uint32_t value = 0;
  if (bar != 0 || data.size() != sizeof value || offset % sizeof value != 0) {
    ++errors_;
    return;
  }
  std::memcpy(&value, data.data(), sizeof value);
  if (offset < chip_page::kSize) {
    write(static_cast<uint32_t>(offset), value);
    return;
  }
  const uint64_t core = offset / core_page::kStride - 1;
  const uint64_t inner = offset % core_page::kStride;
  if (offset >= core_page::kBase && core < core_isock.size() && inner < core_page::kSize) {
    core_access(core, inner, data, true);
  }
}

uint32_t PcieEndpoint::read_bar(int bar, uint64_t offset) {
  if (bar != 0 || offset % 4 != 0) {
    return kAllOnes;
  }
  if (offset < chip_page::kSize) {
    uint32_t value = kAllOnes;
    read(static_cast<uint32_t>(offset), value);
    return value;
  }
  const uint64_t core = offset / core_page::kStride - 1;
  const uint64_t inner = offset % core_page::kStride;
  uint32_t value = kAllOnes;
  if (offset >= core_page::kBase && core < core_isock.size() && inner < core_page::kSize &&
      !core_access(core, inner, std::as_writable_bytes(std::span(&value, 1)), false)) {
    value = kAllOnes;
  }
  return value;
}

void PcieEndpoint::load_window(uint64_t offset, std::span<std::byte> data) {
  const bool broadcast = offset >= core_page::kLoadBroadcast;
  const uint64_t inner =
      broadcast ? offset - core_page::kLoadBroadcast : offset % core_page::kLoadStride;
  const uint64_t first = broadcast ? 0 : offset / core_page::kLoadStride;
  const uint64_t last = broadcast ? core_isock.size() : first + 1;
  for (uint64_t core = first; core < last; ++core) {
    if (core >= core_isock.size() || !core_access(core, kCoreLoadWindow + inner, data, true)) {
      ++errors_;
    }
  }
}

// ---- chip page

RegisterMap PcieEndpoint::registers() {
  static constexpr auto kMap = make_register_map(
      chip_page::kTable, {on_value<&PcieEndpoint::time_low>(chip_page::kTimeLo),
                          on_read<&PcieEndpoint::latch_time>(chip_page::kTimeLo),
                          on_write<&PcieEndpoint::chip_reset>(chip_page::kChipReset),
                          on_write<&PcieEndpoint::mask_written>(chip_page::kIrqMask)});
  return kMap.view();
}

void PcieEndpoint::stored(uint32_t offset, uint32_t value) {
  if (offset == chip_page::kIrqPending) {
    probe_.tell(offset, value);
  }
}

void PcieEndpoint::latch_time() {
  cell(chip_page::kTimeHi) = static_cast<uint32_t>(now_cycles() >> 32);
}

// Sends what was held back.
void PcieEndpoint::mask_written() {
  for (int vector = 0; vector < static_cast<int>(chip_page::kMsiVectors); ++vector) {
    if ((held_ & ~reg(chip_page::kIrqMask) & 1U << vector) != 0) {
      held_ &= ~(1U << vector);
      post_msi(vector);
    }
  }
}

void PcieEndpoint::chip_reset(uint32_t value) {
  if ((value & 1) == 0) {
    return;
  }
  reset_registers();
  if (!has_ecc_) {
    switch_ecc_off();
  }
  uint32_t reset = core_page::kCoreCtrlCoreResetMask;
  for (size_t core = 0; core < core_isock.size(); ++core) {
    core_access(core, core_page::kCoreCtrl, std::as_writable_bytes(std::span(&reset, 1)), true);
  }
  // What is posted yet was for whoever had the chip before.
  held_ = delivered_ = 0;
  for (; !up_.empty(); up_.pop_front()) {
    activity_.end();
  }
}

void PcieEndpoint::upstream_thread() {
  for (;;) {
    if (up_.empty()) {
      wait(up_event_);
      continue;
    }
    const uint64_t at = up_.front().at;
    if (at > now_cycles()) {
      wait(from_cycles(at - now_cycles()));
      continue;  // a reset may have dropped it
    }
    const Upstream write = std::move(up_.front());
    up_.pop_front();
    if (removed_) [[unlikely]] {
      activity_.end();
      continue;
    }
    if (!write.data.empty()) {
      const std::span<std::byte> host = memory_.span(write.iova, write.data.size(), true);
      if (host.size() < write.data.size()) {
        ++errors_;
      } else {
        // A completion comes behind what it tells of, also for a driver of another process that
        // polls its ring (CommandRing has the acquire fence).
        std::atomic_thread_fence(std::memory_order_release);
        std::memcpy(host.data(), write.data.data(), write.data.size());
      }
    }
    if (write.vector != kNoMsi) {
      deliver(write.vector);
    }
    activity_.end();
  }
}

void PcieEndpoint::deliver(int vector) {
  if (upset_ && meets(Upset::kLostMsi)) [[unlikely]] {
    return;
  }
  set_reg(chip_page::kIrqPending, reg(chip_page::kIrqPending) | 1U << vector);
  if ((reg(chip_page::kIrqMask) & 1U << vector) != 0) {
    held_ |= 1U << vector;
    return;
  }
  delivered_ |= 1U << vector;
  msi_event_.notify(sc_core::SC_ZERO_TIME);
}

uint32_t PcieEndpoint::take_msi() { return std::exchange(delivered_, 0); }

void PcieEndpoint::post_host(uint64_t iova, std::vector<std::byte> data, int vector) {
  up_last_at_ = std::max(up_last_at_, now_cycles() + latency_) + wire_cycles(data.size());
  activity_.begin();
  up_.push_back({up_last_at_, iova, std::move(data), vector});
  up_event_.notify(sc_core::SC_ZERO_TIME);
}

void PcieEndpoint::post_msi(int vector) { post_host(0, {}, vector); }

void PcieEndpoint::flow(uint64_t bytes, ResourceId link, std::span<const ResourceId> local) {
  Flow flow;
  sc_core::sc_event done;  // without a name: to register one is slow
  flow.set_bytes(bytes);
  flow.set_event(&done);
  flow.add(link);
  for (const ResourceId id : local) {
    flow.add(id);
  }
  share_.start(flow);
  wait(done);
}

DmaRead PcieEndpoint::read_host(uint64_t iova, uint64_t bytes, std::span<const ResourceId> local,
                                const std::function<void(std::span<const std::byte>)>& sink) {
  wait(from_cycles(latency_));  // the request
  bool mapped = memory_.is_there(iova, bytes, false);
  if (mapped) {
    flow(bytes, down_link_, local);
  }
  wait(from_cycles(latency_));
  if (upset_ && removed_) [[unlikely]] {
    return DmaRead::kNoAnswer;
  }
  if (upset_ && mapped && !local.empty() && meets(Upset::kPoison)) [[unlikely]] {
    ++errors_;
    return DmaRead::kPoisoned;
  }
  if (mapped) {
    const std::span<const std::byte> host = memory_.span(iova, bytes, false);
    mapped = host.size() >= bytes;
    if (mapped) {
      sink(host.first(bytes));
    }
  }
  errors_ += mapped ? 0U : 1U;
  return mapped ? DmaRead::kDone : DmaRead::kNoMemory;
}

bool PcieEndpoint::write_host(uint64_t iova, uint64_t bytes, std::span<const ResourceId> local,
                              const std::function<bool()>& wanted,
                              const std::function<void(std::span<std::byte>)>& source) {
  if (removed_) [[unlikely]] {
    return true;  // into nowhere
  }
  bool mapped = memory_.is_there(iova, bytes, true);
  if (mapped) {
    flow(bytes, up_link_, local);
    if (!wanted()) {
      return true;
    }
    const std::span<std::byte> host = memory_.span(iova, bytes, true);
    mapped = host.size() >= bytes;
    if (mapped) {
      source(host.first(bytes));
    }
  }
  errors_ += mapped ? 0U : 1U;
  return mapped;
}

}  // namespace tpu::model
