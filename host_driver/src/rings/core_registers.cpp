// Register pages of cores, and doorbells.
#include "src/rings/core_registers.hpp"

#include <atomic>

#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

namespace core_page = spec::core_page;

constexpr uint32_t kNoAnswer = 0xFFFFFFFF;  // of a read that timed out, which may get one next time
constexpr int kReads = 3;

uint64_t page(const CorePlace& core, uint64_t offset) {
  return core_page::kBase + static_cast<uint64_t>(core.core) * core_page::kStride + offset;
}

}  // namespace

uint32_t CoreRegisters::read(const CorePlace& core, uint64_t offset) {
  return read_chip(core.chip, page(core, offset));
}

uint32_t CoreRegisters::read_chip(int chip, uint64_t offset) {
  send();
  uint32_t value = kNoAnswer;
  for (int reads = 0; reads < kReads && value == kNoAnswer; ++reads) {
    value = transport_->read32(chip, 0, offset);
  }
  return value;
}

void CoreRegisters::write(const CorePlace& core, uint64_t offset, uint32_t value) {
  send();
  transport_->write32(core.chip, 0, page(core, offset), value);
}

void CoreRegisters::make_room(size_t doorbells) {
  if (doorbells_.capacity() - doorbells_.size() < doorbells) {
    doorbells_.reserve(2 * doorbells_.capacity() + doorbells);
  }
}

void CoreRegisters::ring(const CorePlace& core, CommandRing& commands) {
  if (const auto tail = commands.ring()) {
    doorbells_.push_back({core.chip, 0, page(core, core_page::kCmdTail), *tail});
  }
}

void CoreRegisters::send() {
  if (doorbells_.empty()) {
    return;
  }
  std::atomic_thread_fence(std::memory_order_release);
  try {
    transport_->write32_many(doorbells_);
  } catch (const std::exception& error) {
    failed_(error);
  }
  doorbells_.clear();
}

}  // namespace tpu::driver
