// Memories and events of the mock device.
#include "mock_device.hpp"

#include <cstring>

#include "tpu/spec/gsync_regs.h"
#include "tpu/spec/seq_regs.h"

namespace tpu::test {

uint32_t crc32c(std::span<const uint8_t> bytes) {
  uint32_t crc = ~0U;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
    }
  }
  return ~crc;
}

MockDevice::MockDevice()
    : FakeCore({kCore, kCores, kHbmBytes, 10}, static_cast<FakeSurroundings&>(*this)) {}

void MockDevice::reset() {
  FakeCore::reset();
  echo_pending = false;
}

void MockDevice::abort(uint32_t tag, uint32_t origin, uint32_t code) {
  echo_pending = false;
  FakeCore::abort(tag, origin, code);
}

int32_t MockDevice::first_bad_slot(uint32_t /*bank*/, uint32_t count) {
  slots_checked = count;
  return bad_slot;
}

std::span<std::byte> MockDevice::host_bytes(uint64_t iova, uint64_t bytes, bool /*write*/) {
  if (bytes > host.size() || iova > host.size() - bytes) {
    return {};
  }
  return std::as_writable_bytes(std::span(host)).subspan(iova, bytes);
}

std::span<std::byte> MockDevice::tcm_bytes(uint64_t address, uint64_t bytes) {
  return std::as_writable_bytes(tcm(address, bytes));
}

bool MockDevice::hbm_holds(uint32_t core, uint64_t at, uint64_t bytes) {
  return core < kCores && bytes <= hbm.size() && at <= hbm.size() - bytes;
}

void MockDevice::read_hbm(uint64_t at, std::span<std::byte> out) {
  std::memcpy(out.data(), hbm.data() + at, out.size());
}

void MockDevice::write_hbm(uint64_t at, std::span<const std::byte> data) {
  std::memcpy(hbm.data() + at, data.data(), data.size());
}

void MockDevice::fill_hbm(uint64_t at, uint64_t bytes, uint32_t pattern) {
  for (uint64_t i = 0; i < bytes; i += sizeof(pattern)) {
    std::memcpy(hbm.data() + at + i, &pattern, sizeof(pattern));
  }
}

// Of all cores there is one memory.
void MockDevice::copy_hbm(uint64_t from, uint32_t /*peer*/, uint64_t to, uint64_t bytes) {
  std::memmove(hbm.data() + to, hbm.data() + from, bytes);
}

void MockDevice::send_msi(uint32_t vector) {
  completion_msis += vector == 0 ? 1 : 0;
  event_msis += vector == 1 ? 1 : 0;
}

void MockDevice::program_started() { steps_started.push_back(seq_reg(TPU_SEQ_STEP_OFFSET)); }

void MockDevice::abort_sent(uint32_t tag, uint32_t root, const spec::CoreSet& gang, uint32_t code) {
  aborts_sent.push_back({tag, root, gang, code});
  echo_pending = tag == gsync_reg(TPU_GSYNC_TAG_OFFSET) && gsync_reg(TPU_GSYNC_MASK_OFFSET) != 0 &&
                 (gsync_reg(TPU_GSYNC_STATE_OFFSET) & TPU_GSYNC_STATE_ABORTED_MASK) == 0;
}

bool MockDevice::settle_one() {
  if (finish_any_dma()) {
    return true;
  }
  if (echo_pending) {
    abort(aborts_sent.back().tag, kCore, aborts_sent.back().code);
    return true;
  }
  if (barrier_waiting) {
    release();
    return true;
  }
  if (draining) {
    drained();
    return true;
  }
  if (program_running) {
    finish_program();
    return true;
  }
  return false;
}

}  // namespace tpu::test
