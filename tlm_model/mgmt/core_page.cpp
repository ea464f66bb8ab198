// Core page: access rules of both sides.
#include "mgmt/core_page.hpp"

#include "tpu/spec/core_page_regs.hpp"
#include "tpu/spec/sysctl_regs.hpp"

namespace tpu::model {

namespace page = spec::core_page;
namespace sysctl = spec::sysctl;

namespace {

constexpr uint32_t kAllOnes = 0xFFFFFFFF;

// Registers written by the device only.
bool device_owned(uint32_t offset) {
  switch (offset) {
    case page::kFwState:
    case page::kFwAbi:
    case page::kFwBuild:
    case page::kCmdFetched:
    case page::kCplTail:
    case page::kEpoch:
    case page::kHeartbeat:
    case page::kFaultSeq:
      return true;
    default:
      return false;
  }
}

// Registers that hold what the host wrote.
bool host_owned(uint32_t offset) {
  switch (offset) {
    case page::kHostAbi:
    case page::kBootEntry:
    case page::kBootLen:
    case page::kBootCrc:
    case page::kCmdBaseLo:
    case page::kCmdBaseHi:
    case page::kCmdLog2:
    case page::kCplBaseLo:
    case page::kCplBaseHi:
    case page::kCplLog2:
    case page::kQueueEn:
    case page::kCmdTail:
    case page::kAbort:
    case page::kResume:
    case page::kCallHostLo:
    case page::kCallHostHi:
    case page::kCallHbmLo:
    case page::kCallHbmHi:
    case page::kCallBytes:
    case page::kCallRequest:
      return true;
    default:
      return false;
  }
}

bool in_record(uint32_t offset) {
  return offset >= page::kFaultRecord &&
         offset < page::kFaultRecord + page::kFaultRecordCount * page::kFaultRecordStride;
}

}  // namespace

// Only people read the heartbeat.
bool CorePage::untimed(uint32_t offset, bool write) const {
  return write && offset == sysctl::kHeartbeat;
}

void CorePage::reset() {
  for (uint32_t offset = 0; offset < kShared; offset += 4) {
    if (reg(offset) != 0) {
      set_reg(offset, 0);
    }
  }
  record_.fill(0);
  hbm_window_ = 0;
}

uint32_t CorePage::host_read(uint32_t offset) const {
  if (in_record(offset)) {
    return record_[(offset - page::kFaultRecord) / 4];
  }
  if (offset == page::kCoreCtrl || device_owned(offset) ||
      (host_owned(offset) && offset != page::kAbort)) {
    return regs_[offset / 4];
  }
  return kAllOnes;
}

void CorePage::host_write(uint32_t offset, uint32_t value) {
  if (offset == page::kCoreCtrl) {
    if ((value & page::kCoreCtrlCoreResetMask) != 0) {
      owner_.core_reset();
    }
    const uint32_t levels = value & (page::kCoreCtrlHartRunMask | page::kCoreCtrlDebugHaltMask);
    set_reg(offset, levels);
    owner_.debug_halt((levels & page::kCoreCtrlDebugHaltMask) != 0);
    owner_.hart_run((levels & page::kCoreCtrlHartRunMask) != 0);
    return;
  }
  if (!host_owned(offset)) {
    return;
  }
  set_reg(offset, value);
  if (offset == page::kCmdTail) {
    owner_.doorbell();
  } else if (offset == page::kQueueEn || offset == page::kResume || offset == page::kCallRequest) {
    owner_.host_request();
  } else if (offset == page::kAbort) {
    owner_.host_abort(value);
    owner_.host_request();
  }
}

bool CorePage::read(uint32_t offset, uint32_t& value) {
  if (in_record(offset)) {
    value = record_[(offset - page::kFaultRecord) / 4];
    return true;
  }
  if (device_owned(offset) || host_owned(offset)) {
    value = regs_[offset / 4];
    return true;
  }
  switch (offset) {
    case sysctl::kId:
      value = sysctl::kBlockId;
      return true;
    case sysctl::kCoreId:
      value = identity_.core << sysctl::kCoreIdCoreShift |
              identity_.chip << sysctl::kCoreIdChipShift |
              identity_.local << sysctl::kCoreIdLocalShift |
              identity_.cores << sysctl::kCoreIdCoresShift;
      return true;
    case sysctl::kClockKhz:
      value = identity_.clock_khz;
      return true;
    case sysctl::kHbmLo:
      value = static_cast<uint32_t>(identity_.hbm_bytes);
      return true;
    case sysctl::kHbmHi:
      value = static_cast<uint32_t>(identity_.hbm_bytes >> 32);
      return true;
    case sysctl::kHbmWindowLo:
      value = static_cast<uint32_t>(hbm_window_);
      return true;
    case sysctl::kHbmWindowHi:
      value = static_cast<uint32_t>(hbm_window_ >> 32);
      return true;
    case sysctl::kBoardHashLo:
      value = static_cast<uint32_t>(identity_.board_hash);
      return true;
    case sysctl::kBoardHashHi:
      value = static_cast<uint32_t>(identity_.board_hash >> 32);
      return true;
    case sysctl::kWatchdogKcycles:
      value = identity_.watchdog_kcycles;
      return true;
    default:
      return false;
  }
}

bool CorePage::write(uint32_t offset, uint32_t value) {
  if (in_record(offset)) {
    record_[(offset - page::kFaultRecord) / 4] = value;
    return true;
  }
  if (device_owned(offset)) {
    set_reg(offset, value);
    return true;
  }
  switch (offset) {
    case sysctl::kHbmWindowLo:
      set_low(hbm_window_, value & ~3U);
      return true;
    case sysctl::kHbmWindowHi:
      set_high(hbm_window_, value);
      return true;
    case sysctl::kMsi:
      owner_.send_msi(value);
      return true;
    default:
      return false;
  }
}

}  // namespace tpu::model
