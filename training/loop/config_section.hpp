// A section of a training configuration: each key is asked for by its type, and what nobody asked
// for is refused. Errors name file, line and key.
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tpu::training {

/// "file:line", or what a node that did not come from `file` was parsed as.
std::string place_of(const toml::node& node, const std::string& file);

class Section {
 public:
  /// Called `name` in errors.
  Section(const toml::table& table, std::string name, const std::string& file);
  /// [name] of the file. Throws when it is missing.
  static Section of(const toml::table& root, const std::string& name, const std::string& file);

  template <typename Number>
  struct Range {
    Number low;
    Number high = std::numeric_limits<Number>::max();
  };

  bool has(std::string_view key) const { return table_->contains(key); }
  std::optional<std::string> text(std::string_view key, bool required);
  int64_t number(std::string_view key, bool required, Range<int64_t> range, int64_t fallback);
  /// A whole number counts as one, too.
  double real(std::string_view key, bool required, Range<double> range, double fallback);
  bool flag(std::string_view key, bool fallback);
  /// Empty when the key is not there.
  std::vector<std::string> texts(std::string_view key, bool required);
  /// The same, of numbers; an empty list is refused.
  std::vector<int64_t> numbers(std::string_view key, Range<int64_t> range);
  /// [[section.key]]: tables, each with its own keys.
  std::vector<Section> tables(std::string_view key);

  /// "file:line" of a key; the file alone when it is not there.
  std::string where(std::string_view key) const;
  /// Refuses keys that were not asked for.
  void check_all() const;

 private:
  const toml::node* find(std::string_view key, bool required);

  std::string section_;
  std::string file_;
  const toml::table* table_ = nullptr;
  std::vector<std::string> known_;
};

}  // namespace tpu::training
