// Debug port of the control processor: its hart's address space without time and side effects.
#include <algorithm>
#include <cstring>

#include "mgmt/mgmt.hpp"
#include "tpu/spec/hart_map.h"

namespace tpu::model {

bool Mgmt::peek_register(uint32_t address, uint32_t& value) {
  const uint32_t block = (address - TPU_HART_MMIO_BASE) / TPU_HART_MMIO_BLOCK_BYTES;
  const uint32_t offset = address % TPU_HART_MMIO_BLOCK_BYTES;
  if (address < TPU_HART_MMIO_BASE || block >= blocks_.size()) {
    return false;
  }
  if (blocks_[block] != nullptr) {
    return blocks_[block]->peek(offset, value);
  }
  if (core_blocks_[block] == nullptr) {
    return false;
  }
  tlm::tlm_generic_payload txn;
  txn.set_command(tlm::TLM_READ_COMMAND);
  txn.set_address(offset);
  txn.set_data_ptr(reinterpret_cast<unsigned char*>(&value));
  txn.set_data_length(sizeof value);
  return (*core_blocks_[block])->transport_dbg(txn) == sizeof value;
}

// Of the hart's memories, up to a zero byte or to where nothing is.
std::string Mgmt::text_at(uint32_t address, size_t most) const {
  std::string text;
  uint8_t byte = 0;
  while (text.size() < most && hart().read_memory(address, std::span(&byte, 1)) && byte != 0) {
    text.push_back(static_cast<char>(byte));
    ++address;
  }
  return text;
}

bool Mgmt::debug_read(uint32_t address, std::span<uint8_t> data) {
  if (hart().read_memory(address, data)) {
    return true;
  }
  if (address >= TPU_HART_HBM_WINDOW_BASE) {
    return data.size() <= TPU_HART_HBM_WINDOW_BYTES &&
           bus_hbm_window(address - TPU_HART_HBM_WINDOW_BASE, data, false);
  }
  for (size_t done = 0; done < data.size();) {  // whole registers, of which a part may be wanted
    const uint32_t at = address + static_cast<uint32_t>(done);
    uint32_t word = 0;
    if (!peek_register(at & ~3U, word)) {
      return false;
    }
    const size_t part = std::min<size_t>(sizeof word - at % 4, data.size() - done);
    std::memcpy(data.data() + done, reinterpret_cast<const uint8_t*>(&word) + at % 4, part);
    done += part;
  }
  return true;
}

bool Mgmt::debug_write(uint32_t address, std::span<const uint8_t> data) {
  if (hart_unit_.hart().write_memory(address, data)) {
    return true;
  }
  if (address >= TPU_HART_HBM_WINDOW_BASE) {
    std::vector<uint8_t> copy(data.begin(), data.end());
    return data.size() <= TPU_HART_HBM_WINDOW_BYTES &&
           bus_hbm_window(address - TPU_HART_HBM_WINDOW_BASE, copy, true);
  }
  uint32_t word = 0;
  if (address < TPU_HART_MMIO_BASE || data.size() != sizeof word) {
    return false;
  }
  std::memcpy(&word, data.data(), sizeof word);
  return bus_register(address, true, word);
}

}  // namespace tpu::model
