// The host's pages, boot, and the surroundings of the firmware.
#include "transport/null/null_core.hpp"

#include <algorithm>
#include <cstring>

#include "file/crc32c.hpp"
#include "tpu/spec/chip_page_regs.hpp"
#include "tpu/spec/core_page_regs.hpp"
#include "tpu/spec/gsync_regs.h"
#include "tpu/spec/hart_map.h"
#include "tpu/spec/irq_regs.h"
#include "tpu/spec/perf_regs.hpp"

namespace tpu::driver {
namespace {

namespace core_page = spec::core_page;
namespace chip_page = spec::chip_page;

constexpr uint32_t kAllOnes = 0xFFFFFFFFu;
constexpr uint64_t kSharedPageBytes = 0x80;  // that host and hart see at the same offsets
constexpr uint64_t kCyclesPerTimeoutUnit = 1024;
constexpr size_t kSpoiltByte = 30;  // of an entry
constexpr uint32_t kTrapCause = 2;  // illegal instruction

bool in_record(uint64_t offset) {
  return offset >= core_page::kFaultRecord &&
         offset < core_page::kFaultRecord +
                      core_page::kFaultRecordCount * uint64_t{core_page::kFaultRecordStride};
}

}  // namespace

NullCore::NullCore(NullCores& board, const Place& its_place, uint64_t hbm_bytes,
                   uint32_t watchdog_kcycles)
    : FakeCore({its_place.core, its_place.cores, hbm_bytes, watchdog_kcycles},
               static_cast<FakeSurroundings&>(*this)),
      place(its_place),
      hbm(hbm_bytes),
      board_(board),
      firmware_(*this),
      tcm_(TPU_HART_ITCM_BYTES + TPU_HART_DTCM_BYTES) {}

uint32_t NullCore::host_read(uint64_t offset) {
  if (offset >= kSharedPageBytes && !in_record(offset)) {
    return kAllOnes;
  }
  const uint32_t value = sys(static_cast<uint32_t>(offset));
  return offset == core_page::kFwAbi && value != 0 ? board_.knobs.firmware_abi : value;
}

void NullCore::host_write(uint64_t offset, uint32_t value) {
  const auto reg = static_cast<uint32_t>(offset);
  switch (offset) {
    case core_page::kCoreCtrl:
      if ((value & core_page::kCoreCtrlCoreResetMask) != 0) {
        reset_core();
      } else if ((value & core_page::kCoreCtrlHartRunMask) != 0) {
        boot();
      }
      return;
    case core_page::kCmdTail:
      if (board_.knobs.drop_doorbells > 0) {
        --board_.knobs.drop_doorbells;
        return;
      }
      sys(reg) = value;
      raise(TPU_IRQ_DOORBELL);  // taken when time passes: what is queued meanwhile goes together
      return;
    case core_page::kAbort:
      board_.gangs.abort_by_host(place.core, value);
      [[fallthrough]];
    case core_page::kQueueEn:
    case core_page::kResume:
    case core_page::kCallRequest:
    case core_page::kCallTransfer:
      sys(reg) = value;
      raise(TPU_IRQ_HOST);
      take_turn();
      return;
    case core_page::kHostAbi:
    case core_page::kBootEntry:
    case core_page::kBootLen:
    case core_page::kBootCrc:
    case core_page::kCmdBaseLo:
    case core_page::kCmdBaseHi:
    case core_page::kCmdLog2:
    case core_page::kCplBaseLo:
    case core_page::kCplBaseHi:
    case core_page::kCplLog2:
    case core_page::kCallHostLo:
    case core_page::kCallHostHi:
    case core_page::kCallHbmLo:
    case core_page::kCallHbmHi:
    case core_page::kCallBytes:
      sys(reg) = value;
      return;
    default:
      return;
  }
}

void NullCore::load(uint64_t at, std::span<const std::byte> data) {
  if (at <= tcm_.size() && data.size() <= tcm_.size() - at) {
    std::copy(data.begin(), data.end(), tcm_.begin() + static_cast<ptrdiff_t>(at));
  }
}

void NullCore::reset_core() {
  FakeCore::reset();
  std::fill_n(sysctl.begin(), kSharedPageBytes / 4, 0);
  std::fill_n(sysctl.begin() + core_page::kFaultRecord / 4, core_page::kFaultRecordCount, 0);
  board_.gangs.reset(place.core);
  running_ = dead_ = trapped_ = lost_ = endless = false;
  stuck = 0;
}

// What the mask ROM does. The firmware that starts is the one of this build, whatever the image.
void NullCore::boot() {
  const uint32_t length = sys(core_page::kBootLen);
  uint32_t crc = 0;
  if (length <= tcm_.size()) {
    crc = spec::crc32c(std::span<const std::byte>(tcm_).first(length));
  }
  if (board_.knobs.corrupt_images > 0) {
    --board_.knobs.corrupt_images;
    crc = ~crc;
  }
  if (crc != sys(core_page::kBootCrc)) {
    sys(core_page::kFwState) = core_page::kStateBadImage;
    send_msi(chip_page::kMsiEvent);
    return;
  }
  running_ = true;
  firmware_.boot(0);
}

void NullCore::take_turn() {
  if (running_ && !dead_) {
    firmware_.dispatch();
    if (trapped_) {
      trapped_ = lost_ = false;
      die();
    }
  }
}

bool NullCore::serve() {
  if (!running_ || dead_) {
    return false;
  }
  if (irq_line()) {
    take_turn();
    return true;
  }
  if (finish_any_dma()) {
    return true;
  }
  if (draining) {
    drained();
    return true;
  }
  return false;
}

bool NullCore::expire() {
  if (!running_ || dead_) {
    return false;
  }
  if (timer_armed) {
    timer_armed = false;
    board_.cycle = std::max(board_.cycle, timer_at);
    raise(TPU_IRQ_TIMER);
    return true;
  }
  const uint32_t limit = gsync_reg(TPU_GSYNC_PEER_TIMEOUT_OFFSET);
  if (barrier_waiting && barrier_kind == TPU_GSYNC_KIND_DRAIN && limit != 0) {
    board_.cycle += limit * kCyclesPerTimeoutUnit;
    lose_peer();
    return true;
  }
  return false;
}

void NullCore::die() {
  firmware_.trap(sys(core_page::kBootEntry), kTrapCause);
  dead_ = true;
}

void NullCore::end_step() {
  if (board_.knobs.tell_steps) {
    firmware_.tell_step();
  }
  ++steps;
  finish_program();
}

std::span<std::byte> NullCore::host_bytes(uint64_t iova, uint64_t bytes, bool write) {
  lost_ = trapped_;
  return trapped_ ? std::span<std::byte>()
                  : board_.memory.of_chip(static_cast<int>(place.chip)).span(iova, bytes, write);
}

std::span<std::byte> NullCore::tcm_bytes(uint64_t address, uint64_t bytes) {
  return firmware_.tcm_bytes(address, bytes);
}

bool NullCore::hbm_holds(uint32_t core, uint64_t at, uint64_t bytes) {
  return core < board_.all.size() && board_.all[core]->hbm.holds(at, bytes);
}

void NullCore::fill_hbm(uint64_t at, uint64_t bytes, uint32_t pattern) {
  hbm.fill(at, bytes, pattern);
}

void NullCore::copy_hbm(uint64_t from, uint32_t peer, uint64_t to, uint64_t bytes) {
  board_.all[peer]->hbm.copy_from(hbm, from, to, bytes);
}

uint64_t NullCore::counter(uint32_t index) {
  return index == spec::perf::kCycles ? board_.cycle : 0;
}

void NullCore::send_msi(uint32_t vector) {
  if (lost_) {
    return;
  }
  if (board_.knobs.drop_interrupts > 0) {
    --board_.knobs.drop_interrupts;
    return;
  }
  const uint32_t bit = vector == chip_page::kMsiChip ? vector : 2 * place.local + vector;
  board_.msi[place.chip] |= 1u << bit;
}

void NullCore::program_started() {
  stuck = 0;
  endless = false;
}

void NullCore::arrived(uint32_t kind) {
  if (!trapped_) {
    board_.gangs.arrive(place.core, kind);
  }
}

void NullCore::abort_sent(uint32_t tag, uint32_t root, const spec::CoreSet& gang, uint32_t code) {
  if (!trapped_) {
    board_.gangs.abort(place.core, tag, root, gang, code);
  }
}

void NullCore::entry_on_the_way(std::span<std::byte> entry) {
  NullKnobs& knobs = board_.knobs;
  if (knobs.good_entries > 0) {
    --knobs.good_entries;
  } else if (knobs.corrupt_entries > 0) {
    --knobs.corrupt_entries;
    entry[kSpoiltByte] ^= std::byte{0x10};
  }
  knobs.most_outstanding =
      std::max<uint64_t>(knobs.most_outstanding, sys(core_page::kCmdTail) - firmware_.oldest());
}

void NullCore::completion_on_the_way(std::span<std::byte> completion) {
  if (trapped_) {
    return;
  }
  tpu_completion_t fields;
  std::memcpy(&fields, completion.data(), sizeof(fields));
  ++board_.cycle;
  NullKnobs& knobs = board_.knobs;
  knobs.commands_done += (fields.flags & TPU_CPL_FLAG_MORE) != 0 ? 0 : 1;
  if (knobs.spoil_completion) {
    knobs.spoil_completion(completion);
  }
  trapped_ = knobs.dead_behind > 0 && --knobs.dead_behind == 0;
}

}  // namespace tpu::driver
