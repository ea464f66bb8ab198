// Keys are flattened ("set.chip.hbm_gbps") and keep the order of the file.
#include "cli/sweep/sweep_file.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "check/refuse.hpp"
#include "cli/sweep/row_command.hpp"
#include "file/files.hpp"
#include "loop/config_section.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

constexpr size_t kMostRows = 10000;
constexpr int64_t kLastSeed = int64_t{1} << 61;
constexpr const char* kFaults = "faults";
constexpr const char* kSeed = "fault-seed";

// A key with one value of it.
struct Setting {
  std::string key;
  SweepValue value;
  std::vector<std::string> words;
};
using Settings = std::vector<Setting>;
// What varies together: one of the entries at a time.
using Axis = std::vector<Settings>;

struct Leaf {
  std::string key;
  const toml::node* node;
  toml::source_position at;
};

void add_leaves(const toml::table& table, const std::string& front, std::vector<Leaf>& leaves) {
  for (const auto& [key, node] : table) {
    const std::string full = front + std::string(key.str());
    if (const toml::table* inner = node.as_table()) {
      add_leaves(*inner, full + ".", leaves);
    } else {
      leaves.push_back({full, &node, key.source().begin});
    }
  }
}

std::vector<Leaf> leaves_of(const toml::table& table) {
  std::vector<Leaf> leaves;
  add_leaves(table, "", leaves);
  std::stable_sort(leaves.begin(), leaves.end(),
                   [](const Leaf& a, const Leaf& b) { return a.at < b.at; });
  return leaves;
}

class Reader {
 public:
  Reader(const toml::table& root, const RowCommand& command, Sweep& sweep)
      : root_(root), command_(command), sweep_(sweep) {}

  void read() {
    const Settings common = settings(section("options"));
    std::vector<Axis> axes;
    for (const Leaf& leaf : leaves_of(section("grid"))) {
      axes.push_back(lists({leaf}));
    }
    for (const toml::table* zip : tables("zip")) {
      axes.push_back(lists(leaves_of(*zip)));
    }
    if (!axes.empty()) {
      add_product(common, axes, 0, {});
    }
    for (const toml::table* row : tables("row")) {
      const auto name = (*row)["name"].value_exact<std::string>();
      if (row->contains("name") && !name) {
        refuse(*row->get("name"), "the name of a row is a text");
      }
      const Settings own = settings(*row, "name");
      for (const Setting& setting : own) {
        add_axis(setting.key);
      }
      add_row(common, own, name.value_or(""));
    }
    if (root_.contains("campaign")) {
      if (sweep_.rows.empty()) {
        add_row(common, {}, "");
      }
      add_faults();
    }
    if (sweep_.rows.empty()) {
      driver::refuse(fmt::format("{}: no rows; give [grid], [[zip]] or [[row]]", sweep_.file));
    }
    check_rows();
  }

 private:
  [[noreturn]] void refuse(const toml::node& node, const std::string& text) const {
    driver::refuse(fmt::format("{}: {}", training::place_of(node, sweep_.file), text));
  }

  const toml::table& section(const char* name) const {
    const toml::node* node = root_.get(name);
    if (node == nullptr) {
      return none_;
    }
    if (!node->is_table()) {
      refuse(*node, fmt::format("'{}' must be a section", name));
    }
    return *node->as_table();
  }

  std::vector<const toml::table*> tables(const char* name) const {
    const toml::node* node = root_.get(name);
    std::vector<const toml::table*> all;
    if (node == nullptr) {
      return all;
    }
    const toml::array* list = node->as_array();
    if (list == nullptr || !list->is_homogeneous(toml::node_type::table)) {
      refuse(*node, fmt::format("'{0}' must be written as [[{0}]]", name));
    }
    for (const toml::node& each : *list) {
      all.push_back(each.as_table());
    }
    return all;
  }

  Setting setting(const std::string& key, const toml::node& node) const {
    try {
      return {key,
              {value_text(node), node.is_number() ? node.value<double>() : std::nullopt},
              command_.words(key, node)};
    } catch (const Error& error) {
      refuse(node, error.message());
    }
  }

  // `but`: a key that is no option.
  Settings settings(const toml::table& table, const std::string& but = "") const {
    Settings all;
    for (const Leaf& leaf : leaves_of(table)) {
      if (leaf.key != but) {
        all.push_back(setting(leaf.key, *leaf.node));
      }
    }
    return all;
  }

  // Lists that go together.
  Axis lists(const std::vector<Leaf>& leaves) {
    Axis axis;
    for (const Leaf& leaf : leaves) {
      const toml::array* list = leaf.node->as_array();
      if (list == nullptr || list->empty()) {
        refuse(*leaf.node, fmt::format("'{}' must be a list of values to try", leaf.key));
      }
      if (!axis.empty() && axis.size() != list->size()) {
        refuse(*leaf.node, fmt::format("'{}' has {} values, '{}' beside it {}", leaf.key,
                                       list->size(), axis[0][0].key, axis.size()));
      }
      if (!add_axis(leaf.key)) {
        refuse(*leaf.node, fmt::format("'{}' is an axis already", leaf.key));
      }
      axis.resize(list->size());
      for (size_t i = 0; i < list->size(); ++i) {
        axis[i].push_back(setting(leaf.key, *list->get(i)));
      }
    }
    return axis;
  }

  bool add_axis(const std::string& key) {
    const bool there = std::find(sweep_.axes.begin(), sweep_.axes.end(), key) != sweep_.axes.end();
    if (!there) {
      sweep_.axes.push_back(key);
    }
    return !there;
  }

  void add_product(const Settings& common, const std::vector<Axis>& axes, size_t depth,
                   const Settings& chosen) {
    if (depth == axes.size()) {
      add_row(common, chosen, "");
      return;
    }
    for (const Settings& entry : axes[depth]) {
      Settings more = chosen;
      more.insert(more.end(), entry.begin(), entry.end());
      add_product(common, axes, depth + 1, more);
    }
  }

  // A row's own value goes before the common one.
  void add_row(const Settings& common, const Settings& own, const std::string& name) {
    if (sweep_.rows.size() == kMostRows) {
      driver::refuse(fmt::format("{}: more than {} rows", sweep_.file, kMostRows));
    }
    SweepRow row;
    std::vector<std::string> parts;
    for (const Setting& setting : own) {
      row.values[setting.key] = setting.value;
      parts.push_back(fmt::format("{}={}", setting.key, setting.value.text));
    }
    row.name = name.empty() ? fmt::format("{}", fmt::join(parts, " ")) : name;
    for (const Setting& setting : common) {
      if (row.values.try_emplace(setting.key, setting.value).second) {
        row.words.insert(row.words.end(), setting.words.begin(), setting.words.end());
      }
    }
    for (const Setting& setting : own) {
      row.words.insert(row.words.end(), setting.words.begin(), setting.words.end());
    }
    sweep_.rows.push_back(std::move(row));
  }

  // Behind each row, which has no faults, those that have them.
  void add_faults() {
    training::Section section = training::Section::of(root_, "campaign", sweep_.file);
    const std::vector<std::string> files = section.texts("faults", true);
    const int64_t seeds = section.number("seeds", false, {1, kMostRows}, 0);
    const int64_t first = section.number("first_seed", false, {1, kLastSeed}, 1);
    section.check_all();
    const auto refuse_key = [&](const char* key, const std::string& text) {
      driver::refuse(fmt::format("{}: campaign.{} {}", section.where(key), key, text));
    };
    if (sweep_.command == "bench") {
      driver::refuse(
          fmt::format("{}: [campaign] compares results, which tpuboard bench does not "
                      "have; sweep.command must be \"train\" or \"run\"",
                      sweep_.file));
    }
    if (files.empty()) {
      refuse_key("faults", "must be a list of fault files");
    }
    for (const std::string& file : files) {
      std::error_code none;
      if (!std::filesystem::is_regular_file(std::filesystem::path(sweep_.folder) / file, none)) {
        refuse_key("faults",
                   fmt::format("names '{}', which is not a file in {}", file, sweep_.folder));
      }
    }
    if (seeds == 0 && section.has("first_seed")) {
      refuse_key("first_seed", "needs campaign.seeds; without it, a file has its own seed");
    }
    sweep_.campaign = true;
    add_axis(kFaults);
    if (seeds > 0) {
      add_axis(kSeed);
    }
    const std::vector<SweepRow> clean = std::exchange(sweep_.rows, {});
    for (const SweepRow& row : clean) {
      for (const char* key : {kFaults, kSeed, "fault-log", "no-data"}) {
        if (row.values.contains(key)) {
          driver::refuse(fmt::format(
              "{}: '{}' does not go with [campaign], which {}", sweep_.file, key,
              key == std::string_view("no-data") ? "compares results" : "gives it to its rows"));
        }
      }
      if (clean.size() * (files.size() * static_cast<size_t>(std::max<int64_t>(seeds, 1)) + 1) >
          kMostRows) {
        driver::refuse(fmt::format("{}: more than {} rows", sweep_.file, kMostRows));
      }
      const size_t at = sweep_.rows.size();
      sweep_.rows.push_back(row);
      sweep_.rows.back().name += row.name.empty() ? "clean" : " clean";
      for (const std::string& file : files) {
        SweepRow with = row;
        with.clean = at;
        set(with, kFaults, file, std::nullopt);
        if (seeds == 0) {
          sweep_.rows.push_back(std::move(with));
          continue;
        }
        for (int64_t seed = first; seed < first + seeds; ++seed) {
          sweep_.rows.push_back(with);
          set(sweep_.rows.back(), kSeed, std::to_string(seed), static_cast<double>(seed));
        }
      }
    }
  }

  static void set(SweepRow& row, const std::string& key, const std::string& value,
                  std::optional<double> number) {
    row.name += fmt::format("{}{}={}", row.name.empty() ? "" : " ", key, value);
    row.values[key] = {value, number};
    row.words.push_back("--" + key);
    row.words.push_back(value);
  }

  void check_rows() const {
    std::map<std::vector<std::string>, size_t> seen;
    for (size_t i = 0; i < sweep_.rows.size(); ++i) {
      const SweepRow& row = sweep_.rows[i];
      const auto [first, is_new] = seen.emplace(row.words, i);
      if (!is_new) {
        driver::refuse(
            fmt::format("{}: rows {} and {} are the same run", sweep_.file, first->second, i));
      }
      try {
        command_.check(row.words, sweep_.folder);
      } catch (const Error& error) {
        driver::refuse(
            fmt::format("{}: row {} ({}): {}", sweep_.file, i, row.name, error.message()));
      }
    }
  }

  const toml::table none_;
  const toml::table& root_;
  const RowCommand& command_;
  Sweep& sweep_;
};

// Each is a line of the script, so that one value cannot become two.
void read_slurm(const toml::table& root, Sweep& sweep) {
  const toml::node* node = root.get("slurm");
  if (node == nullptr) {
    return;
  }
  const toml::table* table = node->as_table();
  if (table == nullptr) {
    driver::refuse(
        fmt::format("{}: 'slurm' must be a section", training::place_of(*node, sweep.file)));
  }
  for (const Leaf& leaf : leaves_of(*table)) {
    const std::string value = value_text(*leaf.node);
    const bool plain_key =
        leaf.key.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") == leaf.key.npos;
    if (!plain_key || leaf.key == "array" || !leaf.node->is_value() ||
        value.find_first_of("\n\r") != value.npos) {
      driver::refuse(
          fmt::format("{}: slurm.{} must be an option of sbatch with a text or a number on one "
                      "line; the array is the sweep's own",
                      training::place_of(*leaf.node, sweep.file), leaf.key));
    }
    sweep.slurm.emplace_back(leaf.key, value);
  }
}

toml::table parsed(const std::string& path) {
  const std::vector<std::byte> bytes = read_file(path);
  try {
    return toml::parse(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                       path);
  } catch (const toml::parse_error& error) {
    driver::refuse(fmt::format("{}:{}: {}", path, error.source().begin.line, error.description()));
  }
}

}  // namespace

Sweep load_sweep(const std::string& path) {
  const toml::table root = parsed(path);
  constexpr std::array<std::string_view, 7> kSections = {"sweep", "options",  "grid", "zip",
                                                         "row",   "campaign", "slurm"};
  for (const auto& [key, node] : root) {
    if (std::find(kSections.begin(), kSections.end(), key.str()) == kSections.end()) {
      driver::refuse(fmt::format("{}: unknown section [{}]; known: {}",
                                 training::place_of(node, path), key.str(),
                                 fmt::join(kSections, ", ")));
    }
  }
  Sweep sweep;
  sweep.file = path;
  sweep.folder = std::filesystem::absolute(path).parent_path().string();
  training::Section section = training::Section::of(root, "sweep", path);
  sweep.command = *section.text("command", true);
  sweep.figures = section.texts("figures", false);
  section.check_all();
  read_slurm(root, sweep);
  std::optional<RowCommand> command;
  try {
    command.emplace(sweep.command);
  } catch (const Error& error) {
    driver::refuse(fmt::format("{}: {}", section.where("command"), error.message()));
  }
  Reader(root, *command, sweep).read();
  return sweep;
}

}  // namespace tpu::driver
