// What the debug port of the simulated board says of its cores for people: who waits for whom, and
// what the happens-before checker has found. One record from the model through the transport to the
// driver, which adds names and source lines of operations. Public: installed as
// tpu/board_report.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tpu::spec {

/// A command of a core's queue, or where its sequencer stands.
struct CommandPlace {
  uint32_t core = 0;            ///< of the board
  std::string unit{};           ///< "sequencer", or the name of the queue
  uint32_t pc = 0;              ///< word
  uint32_t op_id = UINT32_MAX;  ///< index into the executable's ops; larger: unknown
  /// Same place.
  bool operator==(const CommandPlace&) const = default;
};

/// A loop that a core program is in.
struct LoopPlace {
  uint32_t op_id = UINT32_MAX;  ///< of the loop, index into the executable's ops
  uint64_t iteration = 0;       ///< counted from 1; of a `while` how often its condition was asked
  /// Same iteration.
  bool operator==(const LoopPlace&) const = default;
};

/// A unit of a core that is not idle: the head of a queue or the sequencer, and what it waits for.
struct UnitWait {
  /// What can end its wait.
  enum class For : uint8_t {
    kNothing,  ///< it has started, or runs
    kSemaphore,
    kQueue,    ///< that is full
    kEngines,  ///< at the end of the program
    kHost,     ///< to answer a call
  };
  CommandPlace at{};         ///< its command
  For what = For::kNothing;  ///< it waits for
  uint32_t index = 0;        ///< of the semaphore; number of the host call
  uint32_t wanted = 0;       ///< of a semaphore
  uint32_t value = 0;        ///< that it has
  std::string queue{};       ///< that is full
  /// The next command that would signal the semaphore; none: no command ahead of any core does.
  std::optional<CommandPlace> ender{};
  /// Commands in front of `ender` in its queue, 0: it is the head; none: it is not issued yet.
  std::optional<uint32_t> behind{};
};

/// A finding of the happens-before checker (SimOptions::check): `who` does `what` to `where`,
/// against `other`.
struct CheckFinding {
  CommandPlace who{};                   ///< the command that it was found at
  std::string what{};                   ///< "overwrites, without waiting for it, what is read by"
  std::optional<CommandPlace> other{};  ///< stands behind `what`
  std::string where{};                  ///< "bytes 60..63 of VMEM of core 0"; may be empty
  uint32_t launch = 0;                  ///< id
  uint64_t step = 0;                    ///< of the board
};

/// Faults on purpose (SimOptions::faults_path) that have happened in one place.
struct FaultTally {
  std::string kind{};   ///< as in the file: "hbm"
  std::string place{};  ///< "core 3", "chip 1", "link chip1 +x"
  uint64_t fired = 0;   ///< that happened
  uint64_t seen = 0;    ///< times that the board met the damage: corrected, retried or reported it
  /// Same tally.
  bool operator==(const FaultTally&) const = default;
};

}  // namespace tpu::spec
