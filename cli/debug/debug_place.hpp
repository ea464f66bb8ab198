// A place in a program that has run: behind a command of the cores, in the order of their ends. An
// op of the graph is passed where the last bytes of what it makes are written, by the core that is
// looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cli/debug/recorded_run.hpp"

namespace tpu::driver {

class DebugPlace {
 public:
  /// Of the first core, before its first command; `run` outlives it.
  explicit DebugPlace(const RecordedRun& run) : run_(run) { look_at(0); }

  size_t core() const { return core_; }  ///< partition of the program
  uint32_t device() const { return static_cast<uint32_t>(run_.devices()[core_]); }
  void look_at(size_t core);  ///< stays where it is

  /// Index of the command behind which it is; nothing: before the first one.
  std::optional<size_t> command() const {
    return behind_ == 0 ? std::nullopt : std::optional(behind_ - 1);
  }
  /// The op that was passed last; nothing: none.
  std::optional<size_t> value() const;
  /// Ops that are passed with a command.
  std::vector<size_t> values_of(size_t command) const;

  void to_command(size_t command) { behind_ = command + 1; }
  void to_end() { behind_ = run_.commands().size(); }
  void to_begin() { behind_ = 0; }
  /// False: it was not made by a command of the log; the place stays.
  bool to_value(size_t value);
  /// Over `count` ops, or commands of the core, as far as there are any; false: there is none.
  bool move_values(uint64_t count, bool forth);
  bool move_commands(uint64_t count, bool forth);

 private:
  struct Passed {
    size_t command;
    size_t value;
  };
  size_t passed_count() const;  // ops that are passed at this place

  const RecordedRun& run_;
  size_t core_ = 0;
  size_t behind_ = 0;           // commands
  std::vector<Passed> passed_;  // by the core, in order
};

}  // namespace tpu::driver
