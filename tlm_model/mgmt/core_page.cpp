// Core page: both sides.
#include "mgmt/core_page.hpp"

#include "tpu/spec/core_page_table.hpp"
#include "tpu/spec/sysctl_regs.hpp"
#include "tpu/spec/sysctl_table.hpp"

namespace tpu::model {

namespace page = spec::core_page;
namespace sysctl = spec::sysctl;
static_assert(sysctl::kIdReset == sysctl::kBlockId);

RegisterMap CorePage::registers() {
  static constexpr auto kMap =
      make_register_map(sysctl::kTable, {on_write<&CorePage::send_msi>(sysctl::kMsi)});
  return kMap.view();
}

CorePage::CorePage(const Identity& identity, CorePageOwner& owner, const RegisterProbe& probe)
    : RegisterBlock(registers()), owner_(owner), probe_(probe), host_(*this) {
  cell(sysctl::kCoreId) = identity.core << sysctl::kCoreIdCoreShift |
                          identity.local << sysctl::kCoreIdLocalShift |
                          identity.cores << sysctl::kCoreIdCoresShift;
  cell(sysctl::kChipId) = identity.chip;
  cell(sysctl::kClockKhz) = identity.clock_khz;
  set_wide(sysctl::kHbmLo, sysctl::kHbmHi, identity.hbm_bytes);
  set_wide(sysctl::kBoardHashLo, sysctl::kBoardHashHi, identity.board_hash);
  cell(sysctl::kWatchdogKcycles) = identity.watchdog_kcycles;
}

void CorePage::stored(uint32_t offset, uint32_t value) {
  if (offset < kShared) {
    probe_.tell(offset, value);
  }
}

void CorePage::reset() {
  host_.reset_registers();
  reset_registers();
}

void CorePage::visit_state(spec::Archive& archive) {
  host_.visit_registers(archive);
  visit_registers(archive);
}

void CorePage::set_record(std::span<const uint32_t> words) {
  for (uint32_t i = 0; i < words.size(); ++i) {
    cell(sysctl::kFaultRecord, i) = words[i];
  }
}

uint64_t CorePage::hbm_window() const {
  return wide_reg(sysctl::kHbmWindowLo, sysctl::kHbmWindowHi);
}

uint32_t CorePage::host_read(uint32_t offset) {
  uint32_t value = kUndefined;
  host_.read(offset, value);
  return value;
}

// ---- host side

RegisterMap CorePage::HostSide::registers() {
  static constexpr auto kMap = make_register_map(
      page::kTable,
      {before_write<&HostSide::before_control>(page::kCoreCtrl),
       on_write<&HostSide::control>(page::kCoreCtrl), on_write<&HostSide::request>(page::kQueueEn),
       on_write<&HostSide::doorbell>(page::kCmdTail), on_write<&HostSide::abort>(page::kAbort),
       on_write<&HostSide::request>(page::kResume),
       on_write<&HostSide::request>(page::kCallRequest),
       on_write<&HostSide::request>(page::kCallTransfer)});
  return kMap.view();
}

CorePage::HostSide::HostSide(CorePage& page) : RegisterBlock(registers()), page_(page) {
  share(page);
}

bool CorePage::HostSide::before_control(uint32_t value) {
  if ((value & page::kCoreCtrlCoreResetMask) != 0) {
    page_.owner_.core_reset();
  }
  return true;
}

void CorePage::HostSide::control(uint32_t value) {
  page_.owner_.debug_halt((value & page::kCoreCtrlDebugHaltMask) != 0);
  page_.owner_.hart_run((value & page::kCoreCtrlHartRunMask) != 0);
}

void CorePage::HostSide::abort(uint32_t tag) {
  page_.owner_.host_abort(tag);
  page_.owner_.host_request();
}

}  // namespace tpu::model
