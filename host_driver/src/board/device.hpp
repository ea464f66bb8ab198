// Device: one core as the driver keeps it: memory, rings and what is on them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "src/board/operation.hpp"
#include "src/event_state.hpp"
#include "src/memory/device_memory.hpp"
#include "tpu/spec/rings.h"

namespace tpu::driver {

/// What the driver knows of one core.
struct Device {
  int id = 0;
  int chip = 0;
  int core = 0;  // on the chip
  std::shared_ptr<DeviceMemory> memory;

  uint64_t cmd_iova = 0;
  uint64_t cpl_iova = 0;
  std::span<std::byte> cmd_ring;
  std::span<std::byte> cpl_ring;
  uint32_t tail = 0;      // commands ever written
  uint32_t rung = 0;      // value of the last doorbell
  uint32_t cpl_head = 0;  // completions ever read
  uint32_t epoch = 0;
  uint32_t boots = 0;
  uint32_t resets = 0;                          // of the track counts: each boot and each resume
  std::array<uint32_t, kTracks> sent{};         // commands appended since then, by track
  std::array<uint32_t, kTracks> done{};         // commands completed since then, by track
  std::deque<std::shared_ptr<Command>> window;  // by seq from tail - window.size(); null: completed
  size_t open = 0;                              // not completed
  size_t launches = 0;                          // not completed
  bool held = false;                            // waits for RESUME
  ErrorPtr trap;                                // why its hart was started again last
  uint32_t told_trap = 0;                       // boots + 1 when its last trap was told
  std::array<bool, TPU_MAX_PROGRAMS> program_used{};

  /// The launch that the core runs, or would run next; null without one.
  Operation* first_launch() const {
    for (const auto& command : window) {
      if (command && command->op && command->op->launch()) {
        return command->op.get();
      }
    }
    return nullptr;
  }

  /// Of a core with nothing on its rings.
  void visit_state(spec::Archive& archive) {
    archive(tail, rung, cpl_head, epoch, boots, resets, sent, done, told_trap, program_used);
    archive.bytes(cmd_ring);
    archive.bytes(cpl_ring);
  }

  /// The firmware counts afresh: what was sent before is over.
  void reset_tracks() {
    ++resets;
    sent = {};
    done = {};
  }
};

}  // namespace tpu::driver
