// The command of a sweep's rows (train, run or bench): which options it has, and a row's words for
// them.
#pragma once

#include <toml++/toml.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tpu::driver {

class RowCommand {
 public:
  /// Throws Error (InvalidArgument) for another command.
  explicit RowCommand(const std::string& name);
  ~RowCommand();
  RowCommand(const RowCommand&) = delete;
  RowCommand& operator=(const RowCommand&) = delete;

  /// Of `key = value`: "steps" = 5 is --steps 5, "set.chip.hbm_gbps" = 450 is --set
  /// chip.hbm_gbps=450, a list is the option again and again, true is a flag, and an argument
  /// without dashes goes by its name. Throws Error (InvalidArgument) for what the command does not
  /// take or the sweep gives itself.
  std::vector<std::string> words(const std::string& key, const toml::node& value) const;
  /// Parses them, with the numbers of the board and the keys of a configuration that is there, and
  /// runs nothing. Relative paths start at `folder`. Throws Error (InvalidArgument).
  void check(const std::vector<std::string>& words, const std::string& folder) const;

 private:
  const CLI::Option& option(const std::string& name) const;
  void check_values(const std::filesystem::path& folder) const;

  std::unique_ptr<CLI::App> app_;
  CLI::App* command_ = nullptr;
};

/// As a table shows it.
std::string value_text(const toml::node& value);

}  // namespace tpu::driver
