// The host's side of the rings in the firmware's tests: writes commands with CRC and doorbell,
// reads completions by their phase.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "mock_device.hpp"
#include "tpu/spec/core_page_regs.h"
#include "tpu/spec/irq_regs.h"
#include "tpu/spec/isa.h"
#include "tpu/spec/program_image.h"
#include "tpu/spec/sysctl_regs.h"

namespace tpu::test {

class RingHost {
 public:
  static constexpr uint64_t kCmdBase = 0x1000;
  static constexpr uint64_t kCplBase = 0x8000;
  static constexpr uint64_t kTable = 0x20000;
  static constexpr uint64_t kImage = 0x30000;

  explicit RingHost(MockDevice& device) : device_(device) {}

  // Writes the handshake's registers; `count` is where both rings start.
  void open(uint32_t cmd_log2, uint32_t cpl_log2, uint32_t count = 0, uint32_t abi = TPU_RING_ABI) {
    cmd_log2_ = cmd_log2;
    cpl_log2_ = cpl_log2;
    tail = written = cpl_head = count;
    device_.sys(TPU_SYSCTL_HOST_ABI_OFFSET) = abi;
    device_.sys(TPU_SYSCTL_CMD_BASE_LO_OFFSET) = kCmdBase;
    device_.sys(TPU_SYSCTL_CPL_BASE_LO_OFFSET) = kCplBase;
    device_.sys(TPU_SYSCTL_CMD_LOG2_OFFSET) = cmd_log2;
    device_.sys(TPU_SYSCTL_CPL_LOG2_OFFSET) = cpl_log2;
    device_.sys(TPU_SYSCTL_CMD_TAIL_OFFSET) = count;
    device_.sys(TPU_SYSCTL_CMD_FETCHED_OFFSET) = count;
    device_.sys(TPU_SYSCTL_CPL_TAIL_OFFSET) = count;
    device_.sys(TPU_SYSCTL_QUEUE_EN_OFFSET) = 1;
    device_.raise(TPU_IRQ_HOST);
    // A preset count begins inside a lap: every slot holds the phase that its next lap does not
    // have.
    const uint32_t entries = 1U << cpl_log2;
    for (uint32_t i = 0; i < entries; ++i) {
      const uint32_t next =
          count + ((i - count) & (entries - 1));  // count that is written here next
      const bool next_phase = ((next >> cpl_log2) & 1U) == 0;
      const uint16_t flags = next_phase ? 0 : TPU_CPL_FLAG_PHASE;
      std::memcpy(&device_.host[kCplBase + i * sizeof(tpu_completion_t) + 6], &flags, 2);
    }
  }

  // Fills in head and CRC and writes the entry; ring() makes it known. Returns its seq.
  template <typename Command>
  uint32_t put(Command command, uint32_t opcode, uint32_t flags = 0) {
    static_assert(sizeof(Command) == TPU_CMD_ENTRY_BYTES);
    command.head.opcode = static_cast<uint16_t>(opcode);
    command.head.flags = static_cast<uint16_t>(flags);
    command.head.seq = written;
    command.head.epoch = epoch;
    std::vector<uint8_t> bytes(TPU_CMD_ENTRY_BYTES);
    std::memcpy(bytes.data(), &command, bytes.size());
    return put_bytes(bytes, true);
  }

  uint32_t put_bytes(std::vector<uint8_t> bytes, bool mend_crc) {
    if (mend_crc) {
      const uint32_t crc = crc32c(std::span(bytes).first(TPU_CMD_ENTRY_BYTES - 4));
      std::memcpy(&bytes[TPU_CMD_ENTRY_BYTES - 4], &crc, 4);
    }
    const uint32_t slot = written & ((1U << cmd_log2_) - 1);
    std::memcpy(&device_.host[kCmdBase + slot * TPU_CMD_ENTRY_BYTES], bytes.data(), bytes.size());
    return written++;
  }

  void doorbell() {
    tail = written;
    device_.sys(TPU_SYSCTL_CMD_TAIL_OFFSET) = tail;
    device_.raise(TPU_IRQ_DOORBELL);
  }

  void resume() {
    ++epoch;
    device_.sys(TPU_SYSCTL_RESUME_OFFSET) = epoch;
    device_.raise(TPU_IRQ_HOST);
  }

  // New completions, in ring order.
  std::vector<tpu_completion_t> take() {
    std::vector<tpu_completion_t> result;
    for (;;) {
      tpu_completion_t entry;
      const uint32_t slot = cpl_head & ((1U << cpl_log2_) - 1);
      std::memcpy(&entry, &device_.host[kCplBase + slot * sizeof entry], sizeof entry);
      const bool first_lap = ((cpl_head >> cpl_log2_) & 1U) == 0;
      if (((entry.flags & TPU_CPL_FLAG_PHASE) != 0) != first_lap) {
        return result;
      }
      ++cpl_head;
      const auto sealed = std::span(device_.host).subspan(kCplBase + slot * sizeof entry);
      bad_seals += entry.crc == crc32c(sealed.first(sizeof entry - sizeof entry.crc)) ? 0 : 1;
      result.push_back(entry);
    }
  }

  // A program image of `slots` slots in host memory, and the command that loads it.
  tpu_command_load_t image(uint32_t slots, uint32_t cores, uint16_t id, uint64_t hbm_dst) {
    tpu_program_image_header_t header{};
    header.magic = TPU_PROGRAM_MAGIC;
    header.isa_version = TPU_ISA_VERSION;
    header.header_bytes = sizeof header;
    header.code_bytes = 64;
    header.slots = slots;
    header.cores = cores;
    std::memcpy(&device_.host[kImage], &header, sizeof header);
    tpu_command_load_t load{};
    load.image_iova = kImage;
    load.hbm_dst = hbm_dst;
    load.bytes = sizeof header + 64;
    load.image_crc = crc32c(std::span(device_.host).subspan(kImage, load.bytes));
    load.program_id = id;
    load.isa_version = TPU_ISA_VERSION;
    return load;
  }

  tpu_command_launch_t launch(uint16_t id, uint16_t slots, uint32_t launch_id, uint32_t steps,
                              uint32_t mask) {
    tpu_command_launch_t command{};
    command.table_iova = kTable;
    command.launch_id = launch_id;
    command.program_id = id;
    command.slots = slots;
    command.steps = steps;
    command.core_mask = mask;
    command.table_crc =
        crc32c(std::span(device_.host).subspan(kTable, slots * sizeof(tpu_slot_entry_t)));
    return command;
  }

  uint32_t tail = 0;      // last doorbell
  uint32_t written = 0;   // commands put
  uint32_t cpl_head = 0;  // completions taken
  uint32_t epoch = 0;
  unsigned bad_seals = 0;  // completions whose CRC is wrong

 private:
  MockDevice& device_;
  uint32_t cmd_log2_ = 0;
  uint32_t cpl_log2_ = 0;
};

}  // namespace tpu::test
