// Places of what is fed, and the flags of the commands that feed it.
#include "src/feeds/step_feed_state.hpp"

#include <algorithm>
#include <cstring>

namespace tpu::driver {

const FeedSlot* StepFeedState::fed_slot(uint32_t slot, size_t p) const {
  for (const FeedSlot& fed : infeed) {
    if (fed.slot == slot) {
      return &fed;
    }
  }
  for (const FeedSlot& fed : outfeed) {
    if (fed.slot == slot && fed.read_from(p)) {
      return &fed;
    }
  }
  return nullptr;
}

// Flags of the LAUNCH command of partition `p`.
uint16_t StepFeedState::launch_flags(size_t p) const {
  const bool out = std::any_of(outfeed.begin(), outfeed.end(),
                               [&](const FeedSlot& slot) { return slot.read_from(p); });
  return static_cast<uint16_t>((infeed.empty() ? 0 : TPU_CMD_FLAG_INFEED) |
                               (out ? TPU_CMD_FLAG_OUTFEED : 0));
}

void set_feed_more(Command& command, bool more) {
  tpu_command_copy_t copy;
  std::memcpy(&copy, command.wire.data(), sizeof(copy));
  copy.feed_more = more ? 1 : 0;
  std::memcpy(command.wire.data(), &copy, sizeof(copy));
}

void stop_counting(Command& command) {
  if ((command.flags & TPU_CMD_FLAG_OUTFEED) == 0) {
    return;
  }
  command.flags = static_cast<uint16_t>(command.flags & ~TPU_CMD_FLAG_OUTFEED);
  set_feed_more(command, false);
}

}  // namespace tpu::driver
