// A file appears under its name only when it is whole (files/files.hpp), so that the names tell
// what is there; the checksum tells what a disk has lost since.
#include "checkpoint/checkpoint_folder.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "check/checked.hpp"
#include "file/files.hpp"
#include "file/output_file.hpp"
#include "tpu/error.hpp"

namespace tpu::training {

using driver::Error;
using driver::ErrorCode;

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRun = "run";
constexpr std::string_view kStep = "step";
constexpr std::string_view kSuffix = ".safetensors";
constexpr const char* kEarlierForm = "checkpoint.json";

// The number at the front of `text`, which loses it; nothing unless it is written as text() does.
std::optional<int64_t> take_number(std::string_view& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = driver::whole_number(text.substr(0, digits));
  if (!number || !std::in_range<int64_t>(*number) ||
      std::to_string(*number) != text.substr(0, digits)) {
    return std::nullopt;
  }
  text.remove_prefix(digits);
  return static_cast<int64_t>(*number);
}

bool take_word(std::string_view& text, std::string_view word) {
  const bool there = text.starts_with(word);
  text.remove_prefix(there ? word.size() : 0);
  return there;
}

std::vector<std::string> entries(const fs::path& folder) {
  std::vector<std::string> out;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    out.push_back(at->path().filename().string());
  }
  const bool none = failed == std::errc::no_such_file_or_directory ||
                    failed == std::errc::not_a_directory;  // no folder, no checkpoints
  if (failed && !none) {
    throw driver::UnreadableFile(
        fmt::format("{}: cannot be read: {}", folder.string(), failed.message()));
  }
  return out;
}

// A checkpoint under a name that only FileWriter gives, of a process that is gone: the folder is
// locked.
bool is_half_written(const fs::path& folder, const std::string& entry) {
  if (!entry.ends_with(spec::kPartSuffix) || !holds_own_checkpoint(folder / entry)) {
    return false;
  }
  const size_t suffix = entry.find(kSuffix);
  return suffix != std::string::npos &&
         CheckpointName::parse(entry.substr(0, suffix + kSuffix.size())).has_value();
}

// What becomes of a file from which no run goes on.
std::string put_aside(const fs::path& path) {
  if (!holds_own_checkpoint(path)) {
    return "it is left as it is";
  }
  fs::path aside = path;
  aside += ".damaged";
  std::error_code failed;
  fs::rename(path, aside, failed);
  return failed ? fmt::format("it keeps its name ({})", failed.message())
                : fmt::format("it is called {} from here on", aside.filename().string());
}

}  // namespace

std::string CheckpointName::text() const {
  const std::string step_text = fmt::format("{}{}{}", kStep, step, kSuffix);
  return run == 1 ? step_text : fmt::format("{}{}.{}", kRun, run, step_text);
}

std::optional<CheckpointName> CheckpointName::parse(const std::string& name) {
  std::string_view rest = name;
  CheckpointName out;
  if (take_word(rest, kRun)) {
    const auto run = take_number(rest);
    if (!run || *run < 2 || !take_word(rest, ".")) {
      return std::nullopt;
    }
    out.run = *run;
  }
  const auto step = take_word(rest, kStep) ? take_number(rest) : std::nullopt;
  if (!step || rest != kSuffix) {
    return std::nullopt;
  }
  out.step = *step;
  return out;
}

CheckpointFolder::CheckpointFolder(fs::path path, size_t keep,
                                   std::function<void(const std::string&)> say)
    : path_(std::move(path)), keep_(keep), say_(std::move(say)) {}

void CheckpointFolder::open() {
  if (lock_) {
    return;
  }
  driver::make_folder(path_);
  lock_.emplace(path_);
  if (::access(path_.c_str(), W_OK | X_OK) != 0) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{}: checkpoints cannot be written there: {}; choose another place",
                            path_.string(), std::strerror(errno)));
  }
  for (const std::string& entry : entries(path_)) {
    if (is_half_written(path_, entry)) {
      std::error_code none;  // it takes room, no more
      fs::remove(path_ / entry, none);
    }
  }
}

std::vector<CheckpointName> CheckpointFolder::names() const { return checkpoint_names(path_); }

std::optional<CheckpointName> CheckpointFolder::newest() const {
  const std::vector<CheckpointName> all = names();
  return all.empty() ? std::nullopt : std::optional(all.back());
}

Checkpoint CheckpointFolder::resume(const std::function<void(const std::string&)>& say) {
  std::error_code none;
  if (names().empty() && !fs::exists(path_ / kEarlierForm, none)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: no checkpoint to resume from; without --resume the run starts "
                            "anew",
                            path_.string()));
  }
  open();
  std::vector<CheckpointName> left = names();
  if (left.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: holds a checkpoint of an earlier format ({} and .npy files), from "
                    "which no run can continue; a new run can start from its state: state.init "
                    "= [\"file:{}/0.npy\", ...]",
                    path_.string(), kEarlierForm, path_.string()));
  }
  for (; !left.empty(); left.pop_back()) {
    const fs::path newest_file = file(left.back());
    try {
      Checkpoint checkpoint = read_checkpoint(newest_file);
      run_ = left.back().run;
      return checkpoint;
    } catch (const driver::UnreadableFile&) {
      throw;  // which says nothing about what it holds
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidArgument || left.size() == 1) {
        throw;
      }
      say(fmt::format("{}; {}, and the one before it is taken: {}", error.message(),
                      put_aside(newest_file), left.end()[-2].text()));
    }
  }
  throw Error(ErrorCode::kInternal, "no checkpoint was tried");
}

void CheckpointFolder::save(const Checkpoint& checkpoint) {
  open();
  if (!run_) {
    const auto last = newest();
    run_ = last ? last->run + 1 : 1;
  }
  const fs::path target = file({.run = *run_, .step = checkpoint.step});
  make_place(target);
  write_checkpoint(target, checkpoint);
  try {
    remove_rest(checkpoint);
  } catch (const driver::UnreadableFile&) {
    // The next one tries again.
  }
}

// A file of others is not lost, nor is the checkpoint that needs its name.
void CheckpointFolder::make_place(const fs::path& target) const {
  const auto there = [](const fs::path& path) {
    std::error_code none;
    return fs::exists(fs::symlink_status(path, none));
  };
  if (!there(target) || holds_own_checkpoint(target)) {
    return;
  }
  fs::path aside;
  for (int number = 1; aside.empty() || there(aside); ++number) {
    aside = target.string() + (number == 1 ? ".other" : fmt::format(".other{}", number));
  }
  std::error_code failed;
  fs::rename(target, aside, failed);
  if (failed) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        fmt::format("{}: is not a checkpoint of this user's runs, and cannot be renamed: {}",
                    target.string(), failed.message()));
  }
  if (say_) {
    say_(fmt::format("{}: was not a checkpoint of this user's runs; it is renamed to {}",
                     target.string(), aside.filename().string()));
  }
}

void CheckpointFolder::remove_rest(const Checkpoint& saved) const {
  const std::vector<CheckpointName> all = names();
  size_t newer = 0;
  for (auto name = all.rbegin(); name != all.rend(); ++name) {
    if (!holds_own_checkpoint(file(*name))) {
      continue;
    }
    const bool mine = name->run == *run_;
    const bool best = mine && saved.best && saved.best->step == name->step;
    if (mine && newer < keep_) {
      ++newer;
    } else if (!best) {
      std::error_code none;  // the next one tries again
      fs::remove(file(*name), none);
    }
  }
}

std::vector<CheckpointName> checkpoint_names(const fs::path& folder) {
  std::vector<CheckpointName> names;
  for (const std::string& entry : entries(folder)) {
    if (const auto name = CheckpointName::parse(entry)) {
      names.push_back(*name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<CheckpointName> newest_checkpoint(const fs::path& folder) {
  try {
    const std::vector<CheckpointName> names = checkpoint_names(folder);
    return names.empty() ? std::nullopt : std::optional(names.back());
  } catch (const driver::UnreadableFile&) {
    return std::nullopt;
  }
}

}  // namespace tpu::training
