// Texts for debuggers.
#include "board/board_debug.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "kernel/cycles.hpp"
#include "sim/wait_text.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::model {
namespace {

namespace page = spec::core_page;

constexpr std::array<std::string_view, page::kStateDead + 1> kStates = {
    "RESET", "ROM", "BAD_IMAGE", "HANDSHAKE", "ABI_MISMATCH",
    "READY", "RUN", "DRAIN",     "HELD",      "DEAD"};

std::string_view state_of(const Mgmt& mgmt) {
  const uint32_t state = mgmt.page_reg(page::kFwState) & page::kFwStateStateMask;
  return state < kStates.size() ? kStates[state] : "?";
}

}  // namespace

size_t BoardDebug::per_chip() const {
  return (*std::ranges::find_if(chips_, [](const Chip* chip) { return chip != nullptr; }))->cores();
}

uint32_t BoardDebug::harts() const { return static_cast<uint32_t>(chips_.size() * per_chip()); }

std::string BoardDebug::time_text() const { return fmt::format("cycle {}", now_cycles()); }

std::string BoardDebug::hart_text(uint32_t core) const {
  Mgmt& unit = mgmt(core);
  const Hart& hart = unit.hart();
  const std::string_view doing = hart.dead()                  ? "dead"
                                 : hart.sleeping()            ? "asleep"
                                 : unit.hart_unit().running() ? "awake"
                                                              : "in reset";
  return fmt::format("TPU:{} firmware {}, {}, pc {:#010x}", core, state_of(unit), doing, hart.pc());
}

std::string BoardDebug::queues_text(uint32_t core) const {
  const auto place_text = [](const spec::CommandPlace& place) {
    return fmt::format("core {} {} (word {}, op {})", place.core, place.unit, place.pc,
                       place.op_id);
  };
  const bool everywhere = std::ranges::find(chips_, nullptr) == chips_.end();
  std::string text;
  for (const spec::UnitWait& wait : waits_()) {
    if (wait.at.core == core) {
      text += place_text(wait.at) + " " + spec::wait_text(wait, place_text, everywhere) + "\n";
    }
  }
  return text;
}

std::string BoardDebug::semaphores_text(uint32_t core) const {
  const Semaphores& semaphores = chip_of(core).core(index_of(core)).sem();
  std::string text;
  for (uint32_t i = 0; i < semaphores.count(); ++i) {
    if (semaphores.value(i) != 0) {
      text += fmt::format("core {} semaphore {}: {}\n", core, i, semaphores.value(i));
    }
  }
  return text;
}

std::string BoardDebug::rings_text(uint32_t core) const {
  const Mgmt& unit = mgmt(core);
  const auto reg = [&](uint32_t offset) { return unit.page_reg(offset); };
  const auto wide = [&](uint32_t low, uint32_t high) {
    return uint64_t{reg(high)} << 32 | reg(low);
  };
  return fmt::format(
      "core {} firmware {}, epoch {}\n"
      "core {} commands: ring of {} at {:#x}, {} written, {} fetched\n"
      "core {} completions: ring of {} at {:#x}, {} written\n",
      core, state_of(unit), reg(page::kEpoch), core, uint64_t{1} << (reg(page::kCmdLog2) & 31U),
      wide(page::kCmdBaseLo, page::kCmdBaseHi), reg(page::kCmdTail), reg(page::kCmdFetched), core,
      uint64_t{1} << (reg(page::kCplLog2) & 31U), wide(page::kCplBaseLo, page::kCplBaseHi),
      reg(page::kCplTail));
}

}  // namespace tpu::model
