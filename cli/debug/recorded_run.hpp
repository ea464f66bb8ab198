// A program that has run, with what each of its ops made and every command of its cores: what a
// debugger looks at. The board is deterministic, so the program is run again when something of the
// way is wanted that was not kept.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exe/executable.hpp"
#include "reference/value_reference.hpp"
#include "tpu/board.hpp"
#include "tpu/commands.hpp"

namespace tpu::driver {

class RecordedRun {
 public:
  /// Runs the artifact, or (not empty) an executable that tpuc --keep-values made of it, on
  /// arguments from NumPy files, by number (program_inputs.hpp). Throws Error.
  RecordedRun(const OpenOptions& options, const std::string& artifact,
              const std::string& executable, const std::map<size_t, std::string>& inputs);

  const compiler::KeptValues& kept() const { return reference_.kept(); }
  const exe::ExecutableT& program() const { return code_; }
  const std::vector<int>& devices() const { return program_.devices(); }
  /// Of all cores, in the order of their ends.
  const std::vector<spec::LoggedCommand>& commands() const { return commands_; }
  /// Why the launch ended before its time; empty: it did not.
  const std::string& failure() const { return failure_; }

  /// What an op made on a core (a partition of the program). Throws Error.
  HostArray value(size_t number, size_t core) const;
  /// A result of the program on a core, and an argument, which is global.
  HostArray result(size_t number, size_t core) const;
  HostArray argument(size_t number) const;
  /// The command that wrote the last bytes of the value: an index into commands(). Nothing: none
  /// did before the launch failed.
  std::optional<size_t> maker(size_t number, size_t core) const { return makers_[number][core]; }
  /// Memory as it is when a command is done. The program runs once more. Throws Error.
  std::vector<std::byte> memory_after(size_t command, const spec::MemoryRange& range);
  /// Against the reference evaluation; computed once. Throws Error.
  const compiler::ValueChecked& check(double tolerance);

  void close() const { board_.close(); }

 private:
  void check_results(const std::string& executable) const;
  spec::CommandLog run(const std::optional<spec::MemoryLook>& look);
  void find_makers();
  HostArray read(size_t result, size_t core) const;

  const std::vector<std::byte> artifact_;
  const compiler::ValueReference reference_;
  const std::map<size_t, std::string> inputs_;
  exe::ExecutableT code_;
  Board board_;
  Executable program_;
  std::vector<Array> arguments_;  // of the last run
  RunResult result_;
  std::string failure_;
  std::vector<spec::LoggedCommand> commands_;
  std::vector<std::vector<std::optional<size_t>>> makers_;  // by value and core
  std::optional<compiler::ValueChecked> checked_;
};

}  // namespace tpu::driver
