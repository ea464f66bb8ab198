// Operation: one call of the user that is in flight. A copy may be many commands on one core, a
// launch is one command on each core of the gang.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/handles/event_state.hpp"
#include "src/memory/device_memory.hpp"
#include "src/rings/command.hpp"
#include "tpu/buffer.hpp"
#include "tpu/executable.hpp"
#include "tpu/spec/rings.h"

namespace tpu::driver {

struct BufferState;
struct LoadedProgram;
struct Residence;
class StagingRange;
struct StepFeedState;

/// Bytes of a host call that travel, or wait for those before them.
struct HostTransfer {
  uint32_t number = 0;  ///< of the call
  std::shared_ptr<StagingRange>
      staged;         ///< of one from the host beside the program: when it begins
  int32_t array = 0;  ///< of the channel; of transfers beside the program
};

/// Where one core of a launch is in its host calls.
struct HostCallState {
  std::vector<std::shared_ptr<Allocation>> slots;
  std::shared_ptr<StagingRange> staged;  ///< what travels; of a call for all, the same everywhere
  uint32_t number = 0;                   ///< of the call that the core stands at
  uint32_t ticket = 0;                   ///< what an answer to it says
  uint32_t newest = 0;                   ///< of the core: what a request for a transfer says
  bool open = false;                     ///< it stands there, and waits for its peers or the host
  bool finishes = false;                 ///< it waits for transfers beside the program
  std::deque<HostTransfer> transfers;    ///< the first one is under way
};

struct Operation {
  uint64_t number = 0;                             ///< order of submission on the board
  std::string what;                                ///< for error texts
  std::vector<std::shared_ptr<Command>> commands;  ///< null: over, of all but launches
  std::vector<uint16_t> status;
  size_t open = 0;
  bool sealed = false;  ///< no more commands will be added
  bool finished = false;
  ErrorPtr error;                                   ///< first failure of a command
  std::vector<std::shared_ptr<EventState>> inputs;  ///< when one failed, so does this
  std::vector<std::shared_ptr<EventState>> after;   ///< of these: not sent before they are over
  std::shared_ptr<EventState> event;
  bool crosses = false;  ///< writes memory of another core than that of its ring
  std::vector<std::shared_ptr<Allocation>> reads, writes;  ///< of all of it, until it is sent
  uint64_t end_cycle = 0;

  // Launches only.
  std::shared_ptr<LoadedProgram> program;
  std::shared_ptr<Residence> residence;
  uint32_t launch_id = 0;
  uint32_t steps = 1;  // of a launch
  uint64_t trace_context = 0;
  std::shared_ptr<StepFeedState> feed;
  std::vector<std::weak_ptr<BufferState>> donated;
  HostCallHandler on_host_call;
  std::vector<HostCallState> calls;  ///< by partition; of programs with host calls
  /// What the program keeps in the host's memory, by channel and partition: arrays by their number,
  /// and the number of the next one.
  struct Kept {
    int32_t next = 0;
    std::map<int32_t, std::vector<std::byte>> arrays;
  };
  std::map<std::pair<int64_t, size_t>, Kept> kept;
  bool on_board = false;  ///< a ring has it, and no core has said that it did not start
  std::optional<tpu_fault_record_t> trap;  ///< of a core that died with it
  std::string trap_place;
  std::string stall_text;
  bool repeated = false;  ///< hardware failed it once, and it was sent again
  ErrorPtr verdict;       ///< why the driver itself took it off the board

  bool launch() const { return program != nullptr; }

  /// Why an input is lost; null while none is.
  ErrorPtr failed_input() const {
    for (const auto& input : inputs) {
      if (input->failed()) {
        return input->error;
      }
    }
    return nullptr;
  }
};

/// One of them writes memory that the other uses.
bool conflict(const Operation& a, const Operation& b);

}  // namespace tpu::driver
