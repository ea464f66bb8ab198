// What replays need of a record, compact and in the order in which it is used: the commands of each
// queue, and what the sequencers do. All replays of a record share it, and so do cores that have
// the same to do.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "record/step_record.hpp"

namespace tpu::driver {

inline constexpr uint16_t kOwnCore = UINT16_MAX;

// One line of a host's cache. No command keeps an engine for 2^32 cycles.
struct ReplayCommand {
  uint64_t size = 0;        // of a transfer its bytes, of a timed one the cycles until it is done
  uint32_t free_after = 0;  // of a timed one, from its start
  uint32_t held_after = 0;  // from the start of the one in front; 0: not held
  uint32_t number = 0;      // in RecordedCore::commands
  uint32_t op_id = 0;
  std::array<spec::SemaphoreUse, 2> wait{}, signal{};
  uint16_t to_core = 0;  // as those of signals: kOwnCore, or of the board
  spec::RecordedMemory from = spec::RecordedMemory::kNone, to = spec::RecordedMemory::kNone;
  bool transfers = false;
  bool remote = false;
  bool timed = false;  // takes what it took: one of an engine that works
  bool fills : 1 = false;
  bool apart : 1 = false;  // of what core it is makes a difference
};
static_assert(sizeof(ReplayCommand) == 64);

struct ReplayItem {
  enum class Kind : uint8_t { kIssue, kTake, kSignal, kHost, kHalt };
  uint64_t gap = 0;     // cycles that the sequencer needs to get to it from the one before
  uint32_t amount = 0;  // kTake, kSignal; kHost: number of its wait in Core::host_waits
  uint8_t index = 0;    // kIssue: queue; kTake, kSignal: semaphore
  Kind kind = Kind::kIssue;
  bool apart = false;  // kIssue: of such a command
};
static_assert(sizeof(ReplayItem) == 16);

struct ReplayProgram {
  static constexpr uint32_t kNoWay = 0;

  explicit ReplayProgram(const spec::StepRecord& record);

  /// Where all cores are alike: the number of the way from each core to the one that this command
  /// of it reaches, if together they go from all cores to all cores, with as many links each and
  /// each link used as often. Else kNoWay.
  uint32_t way_of(size_t queue, size_t index) const {
    return index < ways[queue].size() ? ways[queue][index] : kNoWay;
  }

  /// What one core has to do, or several.
  struct Stream {
    std::array<std::vector<ReplayCommand>, spec::kQueueCount> queues{};
    std::vector<ReplayItem> items{};
    std::vector<uint64_t> host_waits{};  // cycles
  };
  struct Core {
    uint32_t core = 0;
    uint64_t begin = 0;
    size_t commands = 0;
    uint32_t like = 0;  // the first core that has the same to do, but for commands apart
    std::shared_ptr<const Stream> stream{};  // of that core
    // Of a core that is like another one: its own commands apart, in order of their index.
    struct Own {
      uint32_t index;
      ReplayCommand command;
    };
    std::array<std::vector<Own>, spec::kQueueCount> own{};

    const ReplayCommand& command(size_t queue, size_t index) const {
      const ReplayCommand& shared = stream->queues[queue][index];
      return shared.apart && !own[queue].empty() ? own_or(queue, index, shared) : shared;
    }
    /// The core of the board that a command of it names.
    uint32_t reached(uint16_t named) const { return named == kOwnCore ? core : named; }

   private:
    const ReplayCommand& own_or(size_t queue, size_t index, const ReplayCommand& shared) const;
  };
  spec::BoardParams board;  // that the record is of
  std::vector<Core> cores{};
  std::array<std::vector<uint32_t>, spec::kQueueCount> ways{};  // of commands apart
};

}  // namespace tpu::driver
