// Instances of the firmware, and its register access.
#include "fake/firmware_on_host.hpp"

#include "dev/mmio.h"
#include "fake/fake_core.hpp"
#include "rt/fw.h"

namespace tpu::firmware {
namespace {

// The core whose firmware this thread runs; null outside of a FirmwareTurn.
thread_local FakeCore* current_core = nullptr;

}  // namespace

FirmwareTurn::FirmwareTurn(fw_core& state, FakeCore& core)
    : state_before_(fw_of_thread), core_before_(current_core) {
  fw_of_thread = &state;
  current_core = &core;
}

FirmwareTurn::~FirmwareTurn() {
  fw_of_thread = state_before_;
  current_core = core_before_;
}

FirmwareOnHost::FirmwareOnHost(FakeCore& core) : core_(core), state_(std::make_unique<fw_t>()) {}
FirmwareOnHost::~FirmwareOnHost() = default;

void FirmwareOnHost::boot(uint32_t build) {
  *state_ = fw_t{};
  const FirmwareTurn turn(*state_, core_);
  fw_boot(build);
}

bool FirmwareOnHost::dispatch() {
  if (!core_.irq_line()) {
    return false;
  }
  const FirmwareTurn turn(*state_, core_);
  do {
    fw_dispatch(core_.take_interrupts());
  } while (core_.irq_line());
  return true;
}

void FirmwareOnHost::tell_step() {
  const fw_run_t& run = state_->run;
  if (run.state != RUN_PROGRAM || run.step + 1 >= run.steps) {
    return;
  }
  const FirmwareTurn turn(*state_, core_);
  ring_post(run.seq, TPU_STATUS_OK, TPU_CPL_FLAG_MORE | TPU_CPL_FLAG_STEP, run.step + 1, false);
}

void FirmwareOnHost::trap(uint32_t mepc, uint32_t mcause) {
  const FirmwareTurn turn(*state_, core_);
  fault_record_hart(mepc, mcause, 0);
}

uint32_t FirmwareOnHost::oldest() const { return state_->oldest; }

std::span<std::byte> FirmwareOnHost::tcm_bytes(uint64_t address, uint64_t bytes) {
  const auto all = std::as_writable_bytes(std::span(state_.get(), 1));
  const uint64_t offset = address - TPU_HART_DTCM_BASE;
  if (offset > all.size() || bytes > all.size() - offset) {
    return {};
  }
  return all.subspan(offset, bytes);
}

}  // namespace tpu::firmware

extern "C" uint32_t mmio_read32(uint32_t addr) { return tpu::firmware::current_core->read(addr); }
extern "C" void mmio_write32(uint32_t addr, uint32_t value) {
  tpu::firmware::current_core->write(addr, value);
}
