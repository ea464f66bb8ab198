// Commands of `tpuboard debug`: moves in a program that has run, breakpoints, and looks at what is
// there.
#pragma once

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "cli/debug/debug_place.hpp"

namespace tpu::driver {

class DebugSession {
 public:
  /// Writes to `out`; `run` outlives it.
  DebugSession(RecordedRun& run, double tolerance, std::ostream& out)
      : run_(run), tolerance_(tolerance), out_(out), place_(run) {}

  /// One line; false: the session is over. What is wrong with it is said, behind `where` it stands
  /// ("FILE:LINE: "), and counted.
  bool command(const std::string& line, const std::string& where = "");
  size_t wrong_commands() const { return wrong_; }
  /// A command has found an op that made something else than it should.
  bool found_difference() const { return found_; }

  /// What could stand where the last word of a line is.
  std::vector<std::string> completions(const std::string& line) const;

 private:
  struct Break {
    std::string text;
    std::function<bool(size_t value)> by_value;                          // may be empty
    std::function<bool(const spec::LoggedCommand& command)> by_command;  // may be empty
  };
  using Words = std::vector<std::string>;
  struct Command {
    std::string name;
    std::string usage;
    std::string help;
    size_t words;                                   // at most, behind the name
    void (DebugSession::*run)(const Words& words);  // null: the end
  };
  static const std::vector<Command>& commands();

  void help(const Words& words);
  void list(const Words& words);
  void move_ops(const Words& words);
  void move_lines(const Words& words);
  void move_commands(const Words& words);
  void go_to(const Words& words);
  void choose_core(const Words& words);
  void add_break(const Words& words);
  void list_breaks(const Words& words);
  void remove_break(const Words& words);
  void run_on(const Words& words);
  void print(const Words& words);
  void save(const Words& words);
  void memory(const Words& words);
  void compare(const Words& words);

  void show_value(size_t value) const;
  void show_place() const;
  bool stops(size_t command);
  bool not_finite(size_t value) const;
  HostArray array(const std::string& name, size_t core) const;

  RecordedRun& run_;
  const double tolerance_;
  std::ostream& out_;
  DebugPlace place_;
  std::vector<Break> breaks_;
  bool found_ = false;
  size_t wrong_ = 0;
};

}  // namespace tpu::driver
