// Board file loader. Works on the key table that the generator makes from schema.toml.
#include "board/board_loader.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "arith/mxu_shape.hpp"
#include "check/near_names.hpp"
#include "file/whole_file.hpp"

namespace tpu::spec {
namespace {

const BoardKey* find_key(std::string_view section, std::string_view name) {
  for (const BoardKey& key : kBoardKeys) {
    if (key.section == section && key.name == name) {
      return &key;
    }
  }
  return nullptr;
}

// "unknown key ici.link_gpbs", and which one is meant, or else which ones there are.
std::string unknown_key(std::string_view section, std::string_view name) {
  const std::string found = fmt::format("{}.{}", section, name);
  std::vector<std::string> keys;
  std::vector<std::string_view> sections;
  std::vector<std::string_view> of_section;
  for (const BoardKey& key : kBoardKeys) {
    keys.push_back(fmt::format("{}.{}", key.section, key.name));
    if (sections.empty() || sections.back() != key.section) {
      sections.push_back(key.section);
    }
    if (key.section == section) {
      of_section.push_back(key.name);
    }
  }
  if (const std::string meant = closest_name(found, keys); !meant.empty()) {
    return fmt::format("unknown key {}; did you mean {}?", found, meant);
  }
  return of_section.empty()
             ? fmt::format("unknown key {}; the sections are {}", found, fmt::join(sections, ", "))
             : fmt::format("unknown key {}; the keys of {} are {}", found, section,
                           fmt::join(of_section, ", "));
}

std::string file_text(const std::string& path) {
  try {
    const std::vector<std::byte> bytes = read_whole_file(path);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  } catch (const FileError& error) {
    throw BoardError(error.what());
  }
}

std::string place(const std::string& file, const toml::node& node) {
  return fmt::format("{}:{}", file, node.source().begin.line);
}

template <class Number>
void check_range(const BoardKey& key, Number value, const std::string& where) {
  // Not a number is in no range.
  if (!(value >= static_cast<Number>(key.min) && value <= static_cast<Number>(key.max))) {
    throw BoardError(fmt::format("{}: {}.{} = {} is out of range: expected {}..{} {}", where,
                                 key.section, key.name, value, key.min, key.max, key.unit));
  }
}

void read_entry(BoardParams& params, const BoardKey& key, const toml::node& node,
                const std::string& file) {
  const std::string where = place(file, node);
  const toml::table* entry = node.as_table();
  if (entry == nullptr) {
    throw BoardError(fmt::format("{}: {}.{} must be a table {{ value, unit, origin, source }}",
                                 where, key.section, key.name));
  }
  for (const auto& [name, unused] : *entry) {
    static_cast<void>(unused);
    const std::string_view text = name.str();
    if (text != "value" && text != "unit" && text != "origin" && text != "source") {
      throw BoardError(
          fmt::format("{}: unknown field '{}' of {}.{}; known: value, unit, origin, source", where,
                      text, key.section, key.name));
    }
  }
  const auto unit = (*entry)["unit"].value<std::string>();
  if (!unit || *unit != key.unit) {
    throw BoardError(
        fmt::format("{}: {}.{} must have unit \"{}\"", where, key.section, key.name, key.unit));
  }
  if (key.real != nullptr) {
    const auto value = (*entry)["value"].value<double>();
    if (!value) {
      throw BoardError(
          fmt::format("{}: {}.{}: invalid value: expected a number", where, key.section, key.name));
    }
    check_range(key, *value, where);
    key.real(params) = *value;
  } else if (key.number != nullptr) {
    const auto value = (*entry)["value"].value_exact<int64_t>();
    if (!value) {
      throw BoardError(fmt::format("{}: {}.{}: invalid value: expected an integer", where,
                                   key.section, key.name));
    }
    check_range(key, *value, where);
    key.number(params) = *value;
  } else {
    const auto value = (*entry)["value"].value_exact<std::string>();
    if (!value) {
      throw BoardError(
          fmt::format("{}: {}.{}: invalid value: expected a string", where, key.section, key.name));
    }
    key.text(params) = *value;
  }
}

BoardParams one_board() {
  BoardParams params;
  params.pod = {.boards_x = 1, .boards_y = 1, .wrap_x = 0, .wrap_y = 0};
  return params;
}

// What board files have said so far, in the order in which they are read: the files that others
// include come first.
struct ReadBoard {
  BoardParams params = one_board();
  std::set<const BoardKey*> seen;
  std::vector<std::string> open;  // files that are being read, each included by the one before it
};

constexpr size_t kMostIncludes = 16;  // links of the file system can hide that two files are one

toml::table parsed(const std::string& text, const std::string& file) {
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    throw BoardError(
        fmt::format("{}:{}: {}", file, error.source().begin.line, error.description()));
  }
}

bool is_path(const std::string& name_or_path) {
  return name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".toml");
}

// What the user or an including file calls a board, and its text.
std::pair<std::string, std::string> file_and_text(const std::string& name_or_path) {
  if (is_path(name_or_path)) {
    return {name_or_path, file_text(name_or_path)};
  }
  for (const BoardPreset& preset : kBoardPresets) {
    if (preset.name == name_or_path) {
      return {name_or_path + ".toml", std::string(preset.text)};
    }
  }
  throw BoardError(fmt::format("unknown board '{}'; built in: {}; or give the path of a .toml file",
                               name_or_path, fmt::join(board_preset_names(), ", ")));
}

void read_board(ReadBoard& board, const std::string& name_or_path);

// Paths are relative to the folder of the file that includes.
void read_included(ReadBoard& board, const toml::node& node, const std::string& file) {
  const auto name = node.value_exact<std::string>();
  if (!name || name->empty()) {
    throw BoardError(fmt::format(
        "{}: include must be the name of a board or the path of a .toml file", place(file, node)));
  }
  const std::string included =
      is_path(*name)
          ? (std::filesystem::path(file).parent_path() / *name).lexically_normal().string()
          : *name;
  try {
    read_board(board, included);
  } catch (const BoardError& error) {
    throw BoardError(fmt::format("{}: include: {}", place(file, node), error.what()));
  }
  // The name says which board it is, in reports and errors: the included one's would be wrong.
  std::erase_if(board.seen,
                [](const BoardKey* key) { return key->section == "board" && key->name == "name"; });
}

void read_section(ReadBoard& board, std::string_view section, const toml::table& entries,
                  const std::string& file) {
  for (const auto& [name, value] : entries) {
    const BoardKey* key = find_key(section, name.str());
    if (key == nullptr) {
      throw BoardError(fmt::format("{}: {}", place(file, value), unknown_key(section, name.str())));
    }
    read_entry(board.params, *key, value, file);
    board.seen.insert(key);
  }
}

void read_board(ReadBoard& board, const std::string& name_or_path) {
  if (std::find(board.open.begin(), board.open.end(), name_or_path) != board.open.end()) {
    throw BoardError(fmt::format("{} includes itself, through {}; remove one include", name_or_path,
                                 fmt::join(board.open, ", ")));
  }
  if (board.open.size() == kMostIncludes) {
    throw BoardError(
        fmt::format("board files include each other more than {} levels deep", kMostIncludes));
  }
  const auto [file, text] = file_and_text(name_or_path);
  board.open.push_back(name_or_path);
  const toml::table root = parsed(text, file);
  if (const toml::node* include = root.get("include")) {
    read_included(board, *include, file);
  }
  for (const auto& [section, node] : root) {
    if (section.str() == "include") {
      continue;
    }
    const toml::table* entries = node.as_table();
    if (entries == nullptr) {
      throw BoardError(fmt::format("{}: '{}' must be a section", place(file, node), section.str()));
    }
    read_section(board, section.str(), *entries, file);
  }
  board.open.pop_back();
}

BoardParams whole_board(const std::string& name_or_path) {
  ReadBoard board;
  read_board(board, name_or_path);
  for (const BoardKey& key : kBoardKeys) {
    if (key.section != "pod" && !board.seen.contains(&key)) {
      throw BoardError(fmt::format(
          "{}: {}.{} is missing; give it, or include a board that has it: include = \"v3_8\"",
          is_path(name_or_path) ? name_or_path : name_or_path + ".toml", key.section, key.name));
    }
  }
  return board.params;
}

void apply_override(BoardParams& params, const std::string& text) {
  const size_t equals = text.find('=');
  const size_t dot = text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
    throw BoardError(fmt::format(
        "OpenOptions::overrides {}: expected section.key=value, for example hbm.gbps_per_chip=450",
        text));
  }
  const std::string section = text.substr(0, dot);
  const std::string name = text.substr(dot + 1, equals - dot - 1);
  const std::string value = text.substr(equals + 1);
  const BoardKey* key = find_key(section, name);
  if (key == nullptr) {
    throw BoardError(
        fmt::format("OpenOptions::overrides {}: {}", text, unknown_key(section, name)));
  }
  const auto take = [&](auto& member, const char* kind) {
    auto number = member;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size()) {
      throw BoardError(fmt::format(
          "OpenOptions::overrides {}: invalid value '{}': expected {}{}", text, value, kind,
          value.find('=') != std::string::npos ? "; this is more than one setting" : ""));
    }
    check_range(*key, number, "OpenOptions::overrides");
    member = number;
  };
  if (key->number != nullptr) {
    take(key->number(params), "an integer");
  } else if (key->real != nullptr) {
    take(key->real(params), "a number");
  } else {
    key->text(params) = value;
  }
}

void check_combinations(const BoardParams& params, const std::string& where) {
  const auto refuse = [&](const std::string& what) { throw BoardError(where + ": " + what); };
  if (params.board.chips % params.board.torus_x != 0) {
    refuse("board.chips must be a multiple of board.torus_x");
  }
  if (core_count(params) > kMaxCores) {
    refuse(
        board_count(params) == 1
            ? fmt::format("board.chips * board.cores_per_chip = {} cores; a board has at most {}",
                          core_count(params), kMaxCores)
            : fmt::format("pod.boards_x * pod.boards_y * board.chips * board.cores_per_chip = "
                          "{} cores; a pod has at most {}: give it fewer boards",
                          core_count(params), kMaxCores));
  }
  const auto longest = [](int64_t chips, bool closed) { return closed ? chips / 2 : chips - 1; };
  const int64_t links =
      longest(chips_x(params), params.pod.boards_x == 1 || params.pod.wrap_x != 0) +
      longest(chips_y(params), params.pod.boards_y == 1 || params.pod.wrap_y != 0);
  if (links > kMostLinks) {
    refuse(board_count(params) == 1
               ? fmt::format("a torus of {} x {} chips has ways of {} links; a board has at most "
                             "{}: bring board.torus_x and board.chips / board.torus_x closer to "
                             "each other",
                             chips_x(params), chips_y(params), links, kMostLinks)
               : fmt::format("a pod of {} x {} chips has ways of {} links; a pod has at most {}: "
                             "bring pod.boards_x and pod.boards_y closer to each other, or set "
                             "pod.wrap_x or pod.wrap_y to 1",
                             chips_x(params), chips_y(params), links, kMostLinks));
  }
  if (params.mxu.rows % 32 != 0) {
    refuse("mxu.rows must be a multiple of 32");
  }
  if (!mxu_sums(params.mxu.chains, params.mxu.segment_rows, params.mxu.rows)) {
    refuse(
        "mxu.chains and mxu.segment_rows must be 2 and 32, or 1 and mxu.rows (docs/numerics.md)");
  }
}

}  // namespace

std::string value_text(const BoardKey& key, const BoardParams& params) {
  BoardParams copy = params;
  return key.number != nullptr ? fmt::format("{}", key.number(copy))
         : key.real != nullptr ? fmt::format("{}", key.real(copy))
                               : key.text(copy);
}

std::vector<std::string> board_preset_names() {
  std::vector<std::string> names;
  for (const BoardPreset& preset : kBoardPresets) {
    names.emplace_back(preset.name);
  }
  return names;
}

BoardParams load_board(const std::string& name_or_path, const std::vector<std::string>& overrides) {
  BoardParams params = whole_board(name_or_path);
  for (const std::string& text : overrides) {
    apply_override(params, text);
  }
  check_combinations(
      params, overrides.empty() ? name_or_path : name_or_path + " with OpenOptions::overrides");
  return params;
}

uint64_t host_input_cycles(const BoardParams& params, uint64_t bytes) {
  if (params.host.input_gbps == 0) {
    return 0;
  }
  constexpr double kMost = 1e15;  // ten days of the board: what comes later does not matter
  const double cycles = static_cast<double>(bytes) * static_cast<double>(params.core.clock_mhz) /
                        (params.host.input_gbps * 1000);
  return static_cast<uint64_t>(std::min(kMost, std::ceil(cycles)));
}

uint64_t board_hash(const BoardParams& params) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  const auto mix = [&hash](std::string_view text) {
    for (const char c : text) {
      hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ULL;
    }
  };
  BoardParams copy = params;
  for (const BoardKey& key : kBoardKeys) {
    // Executables of one board say nothing of pods.
    const bool of_pod = key.section == "pod";
    if (!key.structural || key.number == nullptr || (of_pod && board_count(params) == 1)) {
      continue;
    }
    mix(fmt::format("{}.{}={};", key.section, key.name, key.number(copy)));
  }
  return hash;
}

}  // namespace tpu::spec
