// The whole board under a few lines of driver: boot of all cores, rings, commands, completions.
// Enough to run programs made by hand; retries, errors and memory management belong to the real
// driver.
#pragma once

#include <array>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "board/board_host.hpp"
#include "board/board_loader.hpp"
#include "file/crc32c.hpp"
#include "image/firmware_image.hpp"
#include "tpu/spec/chip_page_regs.hpp"
#include "tpu/spec/core_page_regs.hpp"
#include "tpu/spec/hart_map.h"
#include "tpu/spec/isa.hpp"
#include "tpu/spec/program_image.h"
#include "tpu/spec/rings.h"

namespace tpu::model {

// Host memory from address kBase on.
class HostArena : public HostMemory {
 public:
  static constexpr uint64_t kBase = 0x100000;
  explicit HostArena(size_t bytes) : bytes_(bytes) {}
  std::span<std::byte> span(uint64_t iova, uint64_t bytes, bool /*write*/) override {
    if (iova < kBase || iova - kBase > bytes_.size() || bytes > bytes_.size() - (iova - kBase)) {
      return {};
    }
    return std::span(bytes_).subspan(iova - kBase, bytes);
  }
  template <typename T>
  T get(uint64_t iova) {
    T value;
    std::memcpy(&value, span(iova, sizeof value, false).data(), sizeof value);
    return value;
  }
  template <typename T>
  void put(uint64_t iova, const T& value) {
    std::memcpy(span(iova, sizeof value, true).data(), &value, sizeof value);
  }
  // Next `bytes` that nobody has.
  uint64_t take(uint64_t bytes) {
    const uint64_t at = next_;
    next_ += (bytes + 4095) / 4096 * 4096;
    return at;
  }

 private:
  std::vector<std::byte> bytes_;
  uint64_t next_ = kBase;
};

class BoardBench {
 public:
  static constexpr size_t kArenaBytes = 64 << 20;
  static constexpr uint32_t kRingEntries = 1U << TPU_CMD_RING_LOG2;
  static constexpr uint32_t kCplEntries = 1U << TPU_CPL_RING_LOG2;

  explicit BoardBench(BoardOptions options = default_options())
      : arena(kArenaBytes), host(options, arena) {
    cores_.resize(static_cast<size_t>(spec::core_count(options.params)));
    per_chip_ = static_cast<uint32_t>(options.params.board.cores_per_chip);
  }

  static BoardOptions default_options() {
    BoardOptions options;
    options.params = spec::load_board("v3_8");
    options.sim.threads = 1;
    return options;
  }

  uint32_t cores() const { return static_cast<uint32_t>(cores_.size()); }
  int chip(uint32_t core) const { return static_cast<int>(core / per_chip_); }
  uint64_t page(uint32_t core, uint32_t offset) const {
    return spec::core_page::kBase + core % per_chip_ * spec::core_page::kStride + offset;
  }
  uint32_t read(uint32_t core, uint32_t offset) {
    return host.read32(chip(core), 0, page(core, offset));
  }
  void write(uint32_t core, uint32_t offset, uint32_t value) {
    host.write32(chip(core), 0, page(core, offset), value);
  }
  uint32_t state(uint32_t core) {
    return read(core, spec::core_page::kFwState) & spec::core_page::kFwStateStateMask;
  }

  // Boots all cores to READY; throws when one does not get there.
  void boot() {
    const auto& image = firmware::image();
    const auto bytes = std::as_bytes(image.bytes);
    constexpr size_t kBurst = 4096;
    for (uint32_t core = 0; core < cores(); core += per_chip_) {
      for (uint32_t i = 0; i < per_chip_; ++i) {
        write(core + i, spec::core_page::kCoreCtrl, spec::core_page::kCoreCtrlCoreResetMask);
      }
      for (size_t at = 0; at < bytes.size(); at += kBurst) {
        host.write_block(chip(core), 2, spec::core_page::kLoadBroadcast + at,
                         bytes.subspan(at, std::min(kBurst, bytes.size() - at)));
      }
    }
    for (uint32_t core = 0; core < cores(); ++core) {
      write(core, spec::core_page::kBootEntry, TPU_HART_ITCM_BASE);
      write(core, spec::core_page::kBootLen, static_cast<uint32_t>(bytes.size()));
      write(core, spec::core_page::kBootCrc, image.crc32c);
      write(core, spec::core_page::kCoreCtrl, spec::core_page::kCoreCtrlHartRunMask);
    }
    wait_state(spec::core_page::kStateHandshake);
    for (uint32_t core = 0; core < cores(); ++core) {
      open_rings(core);
    }
    wait_state(spec::core_page::kStateReady);
  }

  // Appends a command (head and crc are filled in here) and rings the doorbell; returns its seq.
  template <typename Command>
  uint32_t submit(uint32_t core, uint16_t opcode, Command command) {
    static_assert(sizeof command == TPU_CMD_ENTRY_BYTES);
    CoreState& c = cores_[core];
    command.head.opcode = opcode;
    command.head.flags |= TPU_CMD_FLAG_INTERRUPT;
    command.head.seq = c.tail;
    command.head.epoch = c.epoch;
    command.crc =
        spec::crc32c(std::as_bytes(std::span(&command, 1)).first(TPU_CMD_ENTRY_BYTES - 4));
    arena.put(c.commands + c.tail % kRingEntries * TPU_CMD_ENTRY_BYTES, command);
    write(core, spec::core_page::kCmdTail, ++c.tail);
    return c.tail - 1;
  }

  // Lets time pass until the command is complete.
  tpu_completion_t wait(uint32_t core, uint32_t seq) {
    for (;;) {
      drain(core);
      const auto found = cores_[core].done.find(seq);
      if (found != cores_[core].done.end()) {
        return found->second;
      }
      const RunOutcome outcome = host.run();
      if (outcome.quiescent && !drain(core)) {
        throw std::runtime_error("core " + std::to_string(core) + ": quiescent before command " +
                                 std::to_string(seq) + "\n" +
                                 host.stats().cores.at(core).fault_text);
      }
    }
  }

  tpu_completion_t copy(uint32_t core, uint8_t kind, uint64_t src, uint64_t dst, uint64_t bytes,
                        uint8_t peer = 0) {
    tpu_command_copy_t command{};
    command.src = src;
    command.dst = dst;
    command.bytes = bytes;
    command.kind = kind;
    command.peer = peer;
    return wait(core, submit(core, TPU_OP_COPY, command));
  }

  // Puts the image into host memory and loads it on the core as program `id` at HBM offset `at`.
  tpu_completion_t load(uint32_t core, uint16_t id, uint64_t at, std::span<const std::byte> image) {
    const uint64_t iova = arena.take(image.size());
    std::memcpy(arena.span(iova, image.size(), true).data(), image.data(), image.size());
    tpu_command_load_t command{};
    command.image_iova = iova;
    command.hbm_dst = at;
    command.bytes = image.size();
    command.image_crc = spec::crc32c(image);
    command.program_id = id;
    command.isa_version = spec::kIsaVersion;
    return wait(core, submit(core, TPU_OP_LOAD_PROGRAM, command));
  }

  // Launch on the cores of `mask`; returns the seq by core.
  std::map<uint32_t, uint32_t> launch(uint32_t mask, uint16_t id,
                                      const std::vector<tpu_slot_entry_t>& slots,
                                      uint32_t steps = 1) {
    const uint64_t table = arena.take(slots.size() * sizeof(tpu_slot_entry_t) + 1);
    const auto bytes = std::as_bytes(std::span(slots));
    std::memcpy(arena.span(table, bytes.size(), true).data(), bytes.data(), bytes.size());
    const uint32_t launch_id = ++launches_;
    std::map<uint32_t, uint32_t> seqs;
    uint16_t replica = 0;
    for (uint32_t core = 0; core < cores(); ++core) {
      if ((mask >> core & 1) == 0) {
        continue;
      }
      tpu_command_launch_t command{};
      command.table_iova = table;
      command.launch_id = launch_id;
      command.program_id = id;
      command.slots = static_cast<uint16_t>(slots.size());
      command.steps = steps;
      command.core_mask = mask;
      command.replica = replica++;
      command.table_crc = spec::crc32c(bytes);
      seqs[core] = submit(core, TPU_OP_LAUNCH, command);
    }
    return seqs;
  }

  // The next launch has the id behind this one.
  void set_last_launch(uint32_t id) { launches_ = id; }

  // After a fault: goes on with the next epoch.
  void resume(uint32_t core) {
    write(core, spec::core_page::kResume, ++cores_[core].epoch);
    wait_state_of(core, spec::core_page::kStateReady);
  }

  // Reads all completions that are there; true if any was.
  bool drain(uint32_t core) {
    CoreState& c = cores_[core];
    bool any = false;
    for (;; any = true) {
      const auto entry =
          arena.get<tpu_completion_t>(c.completions + c.head % kCplEntries * TPU_CPL_ENTRY_BYTES);
      const bool phase = (entry.flags & TPU_CPL_FLAG_PHASE) != 0;
      if (phase != (c.head / kCplEntries % 2 == 0)) {
        return any;
      }
      if (entry.crc !=
          spec::crc32c(
              std::as_bytes(std::span(&entry, 1)).first(sizeof entry - sizeof entry.crc))) {
        throw std::runtime_error("core " + std::to_string(core) + ": CRC of a completion is wrong");
      }
      ++c.head;
      if ((entry.flags & TPU_CPL_FLAG_MORE) == 0) {
        c.done[entry.seq] = entry;
      } else {
        ++c.more;
      }
    }
  }
  // The cores will be booted again: forgets rings and completions.
  void forget() {
    for (CoreState& core : cores_) {
      core = CoreState{};
    }
  }
  uint32_t intermediate(uint32_t core) const { return cores_[core].more; }

  HostArena arena;
  BoardHost host;

 private:
  struct CoreState {
    uint64_t commands = 0;
    uint64_t completions = 0;
    uint32_t tail = 0;
    uint32_t head = 0;
    uint32_t epoch = 0;
    uint32_t more = 0;
    std::map<uint32_t, tpu_completion_t> done;
  };

  void open_rings(uint32_t core) {
    CoreState& c = cores_[core];
    c.commands = arena.take(kRingEntries * TPU_CMD_ENTRY_BYTES);
    c.completions = arena.take(kCplEntries * TPU_CPL_ENTRY_BYTES);
    c.epoch = read(core, spec::core_page::kEpoch);
    write(core, spec::core_page::kHostAbi, TPU_RING_ABI);
    write(core, spec::core_page::kCmdBaseLo, static_cast<uint32_t>(c.commands));
    write(core, spec::core_page::kCmdBaseHi, 0);
    write(core, spec::core_page::kCmdLog2, TPU_CMD_RING_LOG2);
    write(core, spec::core_page::kCplBaseLo, static_cast<uint32_t>(c.completions));
    write(core, spec::core_page::kCplBaseHi, 0);
    write(core, spec::core_page::kCplLog2, TPU_CPL_RING_LOG2);
    write(core, spec::core_page::kQueueEn, 1);
  }

  void wait_state(uint32_t wanted) {
    for (uint32_t core = 0; core < cores(); ++core) {
      wait_state_of(core, wanted);
    }
  }

  void wait_state_of(uint32_t core, uint32_t wanted) {
    while (state(core) != wanted) {
      if (host.run().quiescent && state(core) != wanted) {
        throw std::runtime_error("core " + std::to_string(core) + " stays in firmware state " +
                                 std::to_string(state(core)) + ", wanted " +
                                 std::to_string(wanted));
      }
    }
  }

  std::vector<CoreState> cores_;
  uint32_t per_chip_ = 1;
  uint32_t launches_ = 0;
};

// A core program put together from command structs and scalar words.
class ProgramImage {
 public:
  ProgramImage(uint32_t slots, uint32_t cores) : slots_(slots), cores_(cores) {}

  template <typename Command>
  void command(Command command, spec::Opcode opcode, spec::Queue queue, uint32_t op_id = 0) {
    command.head.opcode = static_cast<uint8_t>(opcode);
    command.head.queue = static_cast<uint8_t>(queue);
    command.head.words = static_cast<uint8_t>(sizeof command / 8);
    command.head.op_id = op_id;
    append(command);
  }
  void scalar(spec::ScalarOp op, uint8_t rd = 0, uint8_t rs1 = 0, uint8_t rs2 = 0,
              int32_t imm = 0) {
    append(spec::ScalarInsn{static_cast<uint8_t>(op), rd, rs1, rs2, imm});
  }

  std::vector<std::byte> bytes() const {
    tpu_program_image_header_t header{};
    header.magic = TPU_PROGRAM_MAGIC;
    header.isa_version = spec::kIsaVersion;
    header.header_bytes = sizeof header;
    header.code_bytes = static_cast<uint32_t>(code_.size());
    header.slots = slots_;
    header.cores = cores_;
    std::vector<std::byte> image(sizeof header + code_.size());
    std::memcpy(image.data(), &header, sizeof header);
    std::memcpy(image.data() + sizeof header, code_.data(), code_.size());
    return image;
  }

  static spec::Addr hbm(uint16_t slot, int64_t offset = 0) {
    return {.space = static_cast<uint8_t>(spec::Space::kHbm), .slot = slot, .offset = offset};
  }
  static spec::Addr vmem(int64_t offset) {
    return {.space = static_cast<uint8_t>(spec::Space::kVmem), .offset = offset};
  }
  static spec::Wait wait(uint8_t sem, uint16_t value = 1) {
    return {.sem = sem, .flags = spec::Wait::kValid | spec::Wait::kTake, .value = value};
  }
  static spec::Signal signal(uint8_t sem) {
    return {.sem = sem, .flags = spec::Signal::kValid, .value = 1};
  }
  // Contiguous copy of 4-byte elements.
  static spec::DmaCommand dma(const spec::Addr& src, const spec::Addr& dst, uint32_t words) {
    spec::DmaCommand command{};
    command.src = src;
    command.dst = dst;
    command.elem_bytes = 4;
    command.counts = {1, 1, 1, 1, words};
    command.src_strides = {0, 0, 0, 0, 4};
    command.dst_strides = {0, 0, 0, 0, 4};
    return command;
  }

 private:
  template <typename T>
  void append(const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    code_.insert(code_.end(), bytes.begin(), bytes.end());
  }

  uint32_t slots_;
  uint32_t cores_;
  std::vector<std::byte> code_;
};

inline tpu_slot_entry_t fixed_slot(uint64_t base, uint64_t size) {
  tpu_slot_entry_t entry{};
  entry.base = base;
  entry.size = size;
  entry.mode = TPU_SLOT_FIXED;
  return entry;
}

}  // namespace tpu::model
