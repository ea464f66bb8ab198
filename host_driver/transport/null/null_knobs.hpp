// What tests change on a null board, and what it counts for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tpu/spec/rings.h"
#include "transport/null/null_hbm.hpp"

namespace tpu::driver {

/// One core's part of a step of a gang, as an executor sees it.
struct NullLaunchPart {
  int core = 0;
  uint32_t replica = 0;
  NullHbm* hbm = nullptr;
  std::vector<tpu_slot_entry_t> slots;  ///< as this step resolves them: FIXED or NULL
  std::vector<std::byte> image;
};

struct NullLaunch {
  uint32_t launch_id = 0;
  std::vector<NullLaunchPart> parts;
};

/// Runs a step; a returned record makes its `core` report FAULT and the others ABORTED.
using NullExecutor = std::function<std::optional<tpu_fault_record_t>(NullLaunch&)>;

struct NullKnobs {
  NullExecutor executor;
  int drop_doorbells = 0;     ///< of the next writes of CMD_TAIL
  int drop_interrupts = 0;    ///< of the next MSIs
  int good_entries = 0;       ///< of the next fetched commands: stay as they are, whatever follows
  int corrupt_entries = 0;    ///< of those after them
  int corrupt_images = 0;     ///< of the next boots
  int stuck_launches = 0;     ///< of the next launches: never end by themselves
  int endless_launches = 0;   ///< of the next launches: run for as long as the host lets them
  int dead_on_launch = -1;    ///< core whose hart dies at its next launch
  int dead_behind = 0;        ///< completions; the hart that writes the last of them dies then
  bool tell_steps = false;    ///< launches complete with MORE | STEP after each step but the last
  bool throw_in_run = false;  ///< the model breaks
  std::function<void(std::span<std::byte>)> spoil_completion;  ///< changes what is written
  uint32_t firmware_abi = TPU_RING_ABI;                        ///< that FW_ABI says
  uint64_t commands_done = 0;
  uint64_t most_outstanding = 0;  ///< largest tail - oldest open command ever seen
};

}  // namespace tpu::driver
