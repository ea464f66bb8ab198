// Registers and transfers of a fake core's hostdma.
#include "fake/fake_dma.hpp"

#include <algorithm>
#include <cstring>

#include "file/crc32c.hpp"
#include "tpu/spec/rings.h"

namespace tpu::firmware {
namespace {

constexpr size_t kCrcBytes = 4;

uint32_t direction(uint32_t start) {
  return (start & TPU_HOSTDMA_START_DIR_MASK) >> TPU_HOSTDMA_START_DIR_SHIFT;
}

uint32_t space(uint32_t start) {
  return (start & TPU_HOSTDMA_START_SPACE_MASK) >> TPU_HOSTDMA_START_SPACE_SHIFT;
}

void set_half(uint64_t& target, bool high, uint32_t value) {
  target = high ? (target & 0xFFFFFFFFU) | uint64_t{value} << 32
                : (target & ~uint64_t{0xFFFFFFFF}) | value;
}

// Sets the last bytes to the CRC of those before them.
void seal(std::span<std::byte> bytes) {
  const uint32_t crc = spec::crc32c(bytes.first(bytes.size() - kCrcBytes));
  std::memcpy(bytes.last(kCrcBytes).data(), &crc, kCrcBytes);
}

bool sealed(std::span<const std::byte> bytes) {
  const uint32_t crc = spec::crc32c(bytes.first(bytes.size() - kCrcBytes));
  return std::memcmp(bytes.last(kCrcBytes).data(), &crc, kCrcBytes) == 0;
}

}  // namespace

void FakeDma::reset() {
  contexts = {};
  done_ = 0;
}

bool FakeDma::read(uint32_t offset, uint32_t& value) const {
  if (offset == TPU_HOSTDMA_DONE_OFFSET) {
    value = done_;
    return true;
  }
  const size_t index = offset / TPU_HOSTDMA_START_STRIDE;
  if (index >= contexts.size()) {
    return false;
  }
  const Context& context = contexts[index];
  switch (offset % TPU_HOSTDMA_START_STRIDE) {
    case TPU_HOSTDMA_STATUS_OFFSET:
      value = (context.busy ? TPU_HOSTDMA_STATUS_BUSY_MASK : 0) |
              context.error << TPU_HOSTDMA_STATUS_ERROR_SHIFT;
      return true;
    case TPU_HOSTDMA_CRC_OUT_OFFSET:
      value = context.crc;
      return true;
    case TPU_HOSTDMA_ENTRY_BAD_OFFSET:
      value = context.entry_bad;
      return true;
    default:
      return false;
  }
}

bool FakeDma::write(uint32_t offset, uint32_t value) {
  if (offset == TPU_HOSTDMA_DONE_OFFSET) {
    done_ &= ~value;
    return true;
  }
  const size_t index = offset / TPU_HOSTDMA_START_STRIDE;
  if (index >= contexts.size() || contexts[index].busy) {
    return false;
  }
  Context& context = contexts[index];
  const uint32_t reg = offset % TPU_HOSTDMA_START_STRIDE;
  switch (reg) {
    case TPU_HOSTDMA_HOST_LO_OFFSET:
    case TPU_HOSTDMA_HOST_HI_OFFSET:
      set_half(context.host, reg == TPU_HOSTDMA_HOST_HI_OFFSET, value);
      return true;
    case TPU_HOSTDMA_LOCAL_LO_OFFSET:
    case TPU_HOSTDMA_LOCAL_HI_OFFSET:
      set_half(context.local, reg == TPU_HOSTDMA_LOCAL_HI_OFFSET, value);
      return true;
    case TPU_HOSTDMA_LEN_LO_OFFSET:
    case TPU_HOSTDMA_LEN_HI_OFFSET:
      set_half(context.bytes, reg == TPU_HOSTDMA_LEN_HI_OFFSET, value);
      return true;
    case TPU_HOSTDMA_PATTERN_OFFSET:
      context.pattern = value;
      return true;
    case TPU_HOSTDMA_START_OFFSET:
      start(context, value);
      return true;
    default:
      return false;
  }
}

void FakeDma::start(Context& context, uint32_t value) {
  context.start = value;
  context.error = TPU_HOSTDMA_ERR_NONE;
  const bool posted = direction(value) == TPU_HOSTDMA_DIR_TO_HOST &&
                      space(value) == TPU_HOSTDMA_SPACE_TCM &&
                      context.bytes <= TPU_HOSTDMA_POSTED_BYTES;
  if (!posted) {
    context.busy = true;
    return;
  }
  context.error = transfer(context);
  if ((value & TPU_HOSTDMA_START_MSI_MASK) != 0) {
    around_.send_msi(0);
  }
}

bool FakeDma::finish(uint32_t index) {
  Context& context = contexts.at(index);
  if (!context.busy) {
    return false;
  }
  context.error = transfer(context);
  context.busy = false;
  done_ |= 1U << index;
  return true;
}

uint32_t FakeDma::transfer(Context& context) {
  context.entry_bad = 0;
  switch (direction(context.start)) {
    case TPU_HOSTDMA_DIR_FILL:
      return fill(context);
    case TPU_HOSTDMA_DIR_D2D:
      return copy_between_cores(context);
    case TPU_HOSTDMA_DIR_FROM_HOST:
      return take_from_host(context);
    case TPU_HOSTDMA_DIR_TO_HOST:
      return send_to_host(context);
    default: {  // DIR_CRC
      if (const uint32_t error = local_error(context); error != TPU_HOSTDMA_ERR_NONE) {
        return error;
      }
      std::vector<std::byte> bytes(context.bytes);
      take_local(context, bytes);
      context.crc = spec::crc32c(bytes);
      return TPU_HOSTDMA_ERR_NONE;
    }
  }
}

// Where the local end of a transfer is not.
uint32_t FakeDma::local_error(const Context& context) {
  bool inside = false;
  switch (space(context.start)) {
    case TPU_HOSTDMA_SPACE_HBM:
      return around_.hbm_holds(core_, context.local, context.bytes) ? TPU_HOSTDMA_ERR_NONE
                                                                    : TPU_HOSTDMA_ERR_RANGE;
    case TPU_HOSTDMA_SPACE_SLOTS:  // a table does not cross into the other bank
      inside = context.local < slot_banks.size() * uint64_t{TPU_SEQ_SLOT_BANK_BYTES} &&
               context.bytes <= TPU_SEQ_SLOT_BANK_BYTES - context.local % TPU_SEQ_SLOT_BANK_BYTES;
      break;
    default:
      inside = around_.tcm_bytes(context.local, context.bytes).size() == context.bytes;
  }
  escapes += inside ? 0 : 1;  // HBM ranges come from the host, these from the firmware
  return inside ? TPU_HOSTDMA_ERR_NONE : TPU_HOSTDMA_ERR_RANGE;
}

void FakeDma::put_local(const Context& context, std::span<const std::byte> data) {
  switch (space(context.start)) {
    case TPU_HOSTDMA_SPACE_HBM:
      around_.write_hbm(context.local, data);
      return;
    case TPU_HOSTDMA_SPACE_SLOTS: {
      std::vector<std::byte>& bank = slot_banks[context.local / TPU_SEQ_SLOT_BANK_BYTES];
      const uint64_t at = context.local % TPU_SEQ_SLOT_BANK_BYTES;
      bank.resize(std::max<size_t>(bank.size(), at + data.size()));
      std::copy(data.begin(), data.end(), bank.begin() + static_cast<ptrdiff_t>(at));
      return;
    }
    default:
      std::copy(data.begin(), data.end(), around_.tcm_bytes(context.local, data.size()).begin());
  }
}

void FakeDma::take_local(const Context& context, std::span<std::byte> data) {
  if (space(context.start) == TPU_HOSTDMA_SPACE_HBM) {
    around_.read_hbm(context.local, data);
    return;
  }
  const auto local = around_.tcm_bytes(context.local, data.size());
  std::copy(local.begin(), local.end(), data.begin());
}

uint32_t FakeDma::fill(const Context& context) {
  if (context.bytes % 4 != 0 || context.local % 4 != 0) {
    return TPU_HOSTDMA_ERR_ALIGN;
  }
  const uint32_t error = local_error(context);
  if (error == TPU_HOSTDMA_ERR_NONE) {
    around_.fill_hbm(context.local, context.bytes, context.pattern);
  }
  return error;
}

uint32_t FakeDma::copy_between_cores(const Context& context) {
  const uint32_t peer =
      (context.start & TPU_HOSTDMA_START_PEER_MASK) >> TPU_HOSTDMA_START_PEER_SHIFT;
  if (!around_.hbm_holds(core_, context.host, context.bytes) ||
      !around_.hbm_holds(peer, context.local, context.bytes)) {
    return TPU_HOSTDMA_ERR_RANGE;
  }
  around_.copy_hbm(context.host, peer, context.local, context.bytes);
  return TPU_HOSTDMA_ERR_NONE;
}

uint32_t FakeDma::take_from_host(Context& context) {
  if (const uint32_t error = local_error(context); error != TPU_HOSTDMA_ERR_NONE) {
    return error;
  }
  const auto host = around_.host_bytes(context.host, context.bytes, false);
  if (host.data() == nullptr) {
    return TPU_HOSTDMA_ERR_HOST_ADDR;
  }
  if ((context.start & TPU_HOSTDMA_START_CRC_MASK) != 0) {
    context.crc = spec::crc32c(host);
  }
  if ((context.start & TPU_HOSTDMA_START_ENTRIES_MASK) == 0) {
    put_local(context, host);
    return TPU_HOSTDMA_ERR_NONE;
  }
  std::vector<std::byte> entries(host.begin(), host.end());
  for (size_t i = 0; i < entries.size() / TPU_CMD_ENTRY_BYTES; ++i) {
    const auto entry = std::span(entries).subspan(i * TPU_CMD_ENTRY_BYTES, TPU_CMD_ENTRY_BYTES);
    around_.entry_on_the_way(entry);
    context.entry_bad |= sealed(entry) ? 0U : 1U << i;
  }
  put_local(context, entries);
  return TPU_HOSTDMA_ERR_NONE;
}

uint32_t FakeDma::send_to_host(const Context& context) {
  if (const uint32_t error = local_error(context); error != TPU_HOSTDMA_ERR_NONE) {
    return error;
  }
  const auto host = around_.host_bytes(context.host, context.bytes, true);
  if ((context.start & TPU_HOSTDMA_START_SEAL_MASK) != 0 && context.bytes >= kCrcBytes) {
    std::array<std::byte, TPU_HOSTDMA_POSTED_BYTES> buffer;
    const auto bytes = std::span(buffer).first(std::min(context.bytes, buffer.size()));
    take_local(context, bytes);
    seal(bytes);
    around_.completion_on_the_way(bytes);
    std::copy_n(bytes.begin(), std::min(bytes.size(), host.size()), host.begin());
  } else if (host.data() != nullptr) {
    take_local(context, host);
  }
  return host.data() == nullptr ? TPU_HOSTDMA_ERR_HOST_ADDR : TPU_HOSTDMA_ERR_NONE;
}

}  // namespace tpu::firmware
