// Files are compared by size and time of change: data sets are too large to be read for it.
#include "cli/sweep/sweep_folder.hpp"

#include <fmt/format.h>

#include <span>

#include "cli/train/config_files.hpp"
#include "file/files.hpp"
#include "format/digest.hpp"
#include "format/json_output.hpp"
#include "loop/train_config.hpp"
#include "tpu/error.hpp"
#include "tpu/version.hpp"

namespace tpu::driver {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kBegun = "begun.json";
constexpr const char* kRecord = "row.json";
constexpr const char* kFigures = "figures.json";
constexpr const char* kOut = "out";
constexpr size_t kIdDigits = 12;

void add_text(Digest& digest, const std::string& text) {
  digest.add_bytes(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
}

Json parsed(const fs::path& path) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) {
    return Json();
  }
  const std::vector<std::byte> bytes = read_file(path.string());
  const char* text = reinterpret_cast<const char*>(bytes.data());
  return Json::parse(text, text + bytes.size(), nullptr, false);
}

// Files that a row's words name, alone or behind '=', and those of its configuration.
std::vector<fs::path> files_of(const Sweep& sweep, const SweepRow& row) {
  std::vector<fs::path> files;
  std::error_code none;
  const auto add = [&](const fs::path& name) {
    if (fs::is_regular_file(fs::path(sweep.folder) / name, none)) {
      files.push_back(fs::path(sweep.folder) / name);
    }
  };
  std::vector<std::string> changes;
  for (size_t i = 0; i < row.words.size(); ++i) {
    const std::string& word = row.words[i];
    const size_t equals = word.find('=');
    add(word);
    if (equals != std::string::npos) {
      add(word.substr(equals + 1));
    }
    if (i > 0 && row.words[i - 1] == "--with") {
      changes.push_back(word);
    }
  }
  if (const auto config = row.values.find("config");
      sweep.command == "train" && config != row.values.end()) {
    try {
      const std::string path = (fs::path(sweep.folder) / config->second.text).string();
      for (const std::string& file : config_files(training::load_train_config(path, changes))) {
        add(file);
      }
    } catch (const Error&) {
      // The run says what is wrong with it.
    }
  }
  return files;
}

}  // namespace

SweepFolder::SweepFolder(const fs::path& root, const Sweep& sweep)
    : root_(fs::absolute(root).lexically_normal()), sweep_(sweep) {}

fs::path SweepFolder::row(size_t number) const {
  Digest digest;
  add_text(digest, sweep_.command);
  for (const std::string& word : sweep_.rows[number].words) {
    add_text(digest, word);
  }
  return root_ / "rows" / digest.finish().substr(0, kIdDigits);
}

std::vector<std::string> SweepFolder::words(size_t number) const {
  std::vector<std::string> words = {sweep_.command};
  const std::vector<std::string>& own = sweep_.rows[number].words;
  words.insert(words.end(), own.begin(), own.end());
  words.insert(words.end(), {"--json", (row(number) / kFigures).string()});
  if (sweep_.command == "train") {
    words.insert(words.end(), {"--out", (row(number) / kOut).string()});
  }
  if (sweep_.rows[number].clean) {
    words.insert(words.end(), {"--fault-log", fault_log(number).string()});
  }
  return words;
}

std::string SweepFolder::stamp(size_t number) const {
  Digest digest;
  add_text(digest, std::string(kVersion));
  for (const fs::path& file : files_of(sweep_, sweep_.rows[number])) {
    std::error_code none;
    add_text(digest, file.string());
    add_text(digest, fmt::format("{} {}", fs::file_size(file, none),
                                 fs::last_write_time(file, none).time_since_epoch().count()));
  }
  return digest.finish();
}

RowRecord SweepFolder::read(size_t number) const {
  const Json json = parsed(row(number) / kRecord);
  RowRecord record;
  if (!json.is_object() || json.value("stamp", "") != stamp(number)) {
    return record;
  }
  record.state = json.value("state", "") == "done" ? RowState::kDone : RowState::kFailed;
  record.error = json.value("error", "");
  record.host_seconds = json.value("host_seconds", 0.0);
  record.cpu_seconds = json.value("cpu_seconds", 0.0);
  return record;
}

std::string SweepFolder::text(const fs::path& file) {
  std::error_code none;
  if (!fs::is_regular_file(file, none)) {
    return {};
  }
  const std::vector<std::byte> bytes = read_file(file.string());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Json SweepFolder::figures(size_t number) const { return parsed(row(number) / kFigures); }

// The folder's name alone does not say that a sweep has filled it.
bool SweepFolder::has_begun(size_t number) const {
  for (const char* name : {kBegun, kRecord}) {
    const Json json = parsed(row(number) / name);
    if (json.is_object() && json.contains("words") && json.contains("name")) {
      return true;
    }
  }
  return false;
}

void SweepFolder::begin(size_t number) const {
  const fs::path folder = row(number);
  const bool begun = has_begun(number);
  for (const char* name : {kOut, kRecord, kFigures}) {
    if (!begun && fs::exists(fs::symlink_status(folder / name))) {
      throw Error(ErrorCode::kFailedPrecondition,
                  fmt::format("{}: no row of a sweep has written it; move it away, or choose "
                              "another folder with --out",
                              (folder / name).string()));
    }
  }
  if (fs::is_directory(fs::symlink_status(folder / kOut))) {
    const FolderLock none_trains(folder / kOut);  // a run whose sweep was killed may go on
    fs::remove_all(folder / kOut);
  }
  write_json_file((folder / kBegun).string(),
                  {{"name", sweep_.rows[number].name}, {"words", words(number)}});
  fs::remove(folder / kRecord);
  fs::remove(folder / kFigures);
  fs::remove(fault_log(number));
}

void SweepFolder::end(size_t number, const RowRecord& record, const std::string& stamp) const {
  const Json json = {{"name", sweep_.rows[number].name},
                     {"words", words(number)},
                     {"state", record.state == RowState::kDone ? "done" : "failed"},
                     {"error", record.error},
                     {"host_seconds", record.host_seconds},
                     {"cpu_seconds", record.cpu_seconds},
                     {"stamp", stamp}};
  write_json_file((row(number) / kRecord).string(), json, Durability::kSynced);
}

std::string error_in(const std::string& log) {
  constexpr std::string_view kFront = "tpuboard: ";
  size_t at = log.rfind(kFront);
  while (at != std::string::npos && at > 0 && log[at - 1] != '\n') {
    at = log.rfind(kFront, at - 1);
  }
  if (at == std::string::npos) {
    return "";
  }
  std::string text = log.substr(at + kFront.size());
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
}

}  // namespace tpu::driver
