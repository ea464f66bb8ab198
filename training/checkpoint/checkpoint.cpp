// A checkpoint is made as FOLDER.partial and takes the place of FOLDER in one step; where the file
// system cannot exchange two names, FOLDER is called FOLDER.replaced for a moment.
#include "checkpoint/checkpoint.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>  // renameat2

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "files/checked.hpp"
#include "files/digest.hpp"
#include "files/files.hpp"
#include "files/npy.hpp"
#include "tpu/error.hpp"

namespace tpu::training {

using driver::checked_product;
using driver::Digest;
using driver::dtype_name;
using driver::Error;
using driver::ErrorCode;
using driver::format_npy;
using driver::HostArray;
using driver::read_file;
using driver::read_npy;
using driver::sync_folder;
using driver::whole_number;
using driver::write_synced_file;
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kIndex = "checkpoint.json";
constexpr const char* kLosses = "losses.f32";  // as they are in memory, to the bit
constexpr int kVersion = 1;
const std::string kTest = "test_";  // in front of the names of an evaluation's metrics

[[noreturn]] void refuse(const fs::path& path, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", path.string(), what));
}

[[noreturn]] void failed(const fs::path& path, const std::string& what) {
  throw Error(ErrorCode::kInternal, fmt::format("{}: {}", path.string(), what));
}

fs::path beside(const fs::path& folder, const char* suffix) {
  fs::path path = folder;
  return path += suffix;
}
fs::path partial(const fs::path& folder) { return beside(folder, ".partial"); }
fs::path replaced(const fs::path& folder) { return beside(folder, ".replaced"); }

std::string leaf_file(size_t leaf) { return fmt::format("{}.npy", leaf); }

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

double null_or_number(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

template <typename Number>
Number whole(const Json& json) {
  if (!json.is_number_integer() ||
      (json.is_number_unsigned() && !std::in_range<Number>(json.get<uint64_t>())) ||
      (!json.is_number_unsigned() && !std::in_range<Number>(json.get<int64_t>()))) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: damaged: a number is out of range", kIndex));
  }
  return json.get<Number>();
}

Json epoch_json(const EpochResult& epoch) {
  Json json = {{"epoch", epoch.epoch}, {"train_loss", number_or_null(epoch.train_loss)}};
  if (epoch.eval) {
    for (const Metric& metric : epoch.eval->metrics) {
      json[kTest + metric.name] = number_or_null(metric.value);
    }
  }
  return json;
}

EpochResult epoch_of(const Json& json) {
  EpochResult epoch;
  epoch.epoch = whole<int64_t>(json.at("epoch"));
  epoch.train_loss = null_or_number(json.at("train_loss"));
  epoch.whole = true;
  for (const auto& [key, value] : json.items()) {
    if (key.starts_with(kTest)) {
      epoch.eval = epoch.eval.value_or(EvalResult());
      epoch.eval->metrics.push_back({key.substr(kTest.size()), null_or_number(value)});
    }
  }
  return epoch;
}

std::string index_text(const Checkpoint& checkpoint) {
  Json json;
  json["version"] = kVersion;
  json["step"] = checkpoint.step;
  json["digest"] = state_digest(checkpoint.leaves);
  json["order"] = {{"split_seed", checkpoint.order.split_seed},
                   {"examples", checkpoint.order.examples},
                   {"eval_count", checkpoint.order.eval_count},
                   {"batch", checkpoint.order.batch}};
  json["epochs"] = Json::array();
  for (const EpochResult& epoch : checkpoint.epochs) {
    json["epochs"].push_back(epoch_json(epoch));
  }
  json["leaves"] = Json::array();
  for (size_t i = 0; i < checkpoint.leaves.size(); ++i) {
    const HostArray& leaf = checkpoint.leaves[i];
    json["leaves"].push_back(
        {{"file", leaf_file(i)}, {"dtype", dtype_name(leaf.dtype)}, {"shape", leaf.shape}});
  }
  return json.dump(2) + "\n";
}

// One complete folder, or an Error that says what is wrong with it.
Checkpoint read_folder(const fs::path& folder) {
  const fs::path index = folder / kIndex;
  const std::vector<std::byte> bytes = read_file(index.string());
  Checkpoint checkpoint;
  std::string digest;
  size_t leaves = 0;
  try {
    const auto* text = reinterpret_cast<const char*>(bytes.data());
    const Json json = Json::parse(text, text + bytes.size());
    if (!json.contains("version") || json["version"] != kVersion) {
      refuse(index, "of another version of tpuboard; take its leaves by \"file:\" in [state] init");
    }
    checkpoint.step = whole<int64_t>(json.at("step"));
    digest = json.at("digest");
    const Json& order = json.at("order");
    checkpoint.order = {.split_seed = whole<uint64_t>(order.at("split_seed")),
                        .examples = whole<uint64_t>(order.at("examples")),
                        .eval_count = whole<uint64_t>(order.at("eval_count")),
                        .batch = whole<int64_t>(order.at("batch"))};
    for (const Json& epoch : json.at("epochs")) {
      checkpoint.epochs.push_back(epoch_of(epoch));
    }
    leaves = json.at("leaves").size();
  } catch (const Json::exception& error) {
    refuse(index, fmt::format("damaged: {}", error.what()));
  }
  for (size_t i = 0; i < leaves; ++i) {
    checkpoint.leaves.push_back(read_npy((folder / leaf_file(i)).string()));
  }
  if (state_digest(checkpoint.leaves) != digest) {
    refuse(folder, fmt::format("damaged: the leaves do not have the digest that {} says", kIndex));
  }
  const std::vector<std::byte> losses = read_file((folder / kLosses).string());
  const std::optional<int64_t> wanted = checked_product<int64_t>(checkpoint.step, sizeof(float));
  if (checkpoint.step < 0 || !wanted || std::cmp_not_equal(losses.size(), *wanted)) {
    refuse(folder / kLosses, fmt::format("must hold {} losses of 4 bytes", checkpoint.step));
  }
  checkpoint.losses.resize(static_cast<size_t>(checkpoint.step));
  std::memcpy(checkpoint.losses.data(), losses.data(), losses.size());
  return checkpoint;
}

bool complete(const fs::path& folder) {
  try {
    read_folder(folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool is_checkpoint_file(const std::string& name) {
  if (name == kIndex || name == kLosses) {
    return true;
  }
  constexpr std::string_view kSuffix = ".npy";
  return name.ends_with(kSuffix) &&
         whole_number(std::string_view(name).substr(0, name.size() - kSuffix.size())).has_value();
}

// After a crash between two renames the only complete checkpoint has another name.
void take_back_name(const fs::path& folder, FileActions& actions) {
  for (const fs::path& other : {partial(folder), replaced(folder)}) {
    if (is_there(other) && !complete(folder) && complete(other)) {
      actions.remove(folder);
      actions.rename(other, folder);
    }
  }
}

}  // namespace

std::optional<double> EvalResult::find(std::string_view name) const {
  for (const Metric& metric : metrics) {
    if (metric.name == name) {
      return metric.value;
    }
  }
  return std::nullopt;
}

std::string state_digest(const std::vector<HostArray>& leaves) {
  Digest digest;
  for (const HostArray& leaf : leaves) {
    digest.add(leaf);
  }
  return digest.finish();
}

void FileActions::make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    failed(path, fmt::format("the folder cannot be made: {}", error.message()));
  }
}

void FileActions::write(const fs::path& path, std::span<const std::byte> bytes) {
  write_synced_file(path, bytes);
}

void FileActions::sync(const fs::path& folder) { sync_folder(folder); }

bool FileActions::exchange(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

void FileActions::rename(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) {
    failed(from, fmt::format("cannot be renamed to {}: {}", to.string(), error.message()));
  }
}

void FileActions::remove(const fs::path& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) {
    failed(folder, fmt::format("cannot be removed: {}", error.message()));
  }
}

void check_checkpoint_folder(const fs::path& folder) {
  const fs::path name = folder.lexically_normal().filename();
  if (name.empty() || name == "." || name == "..") {
    refuse(folder, "run.checkpoint must name a folder of its own, for example \"checkpoint\"");
  }
  for (const fs::path& path : {folder, partial(folder), replaced(folder)}) {
    std::error_code error;
    if (!is_there(path)) {
      continue;
    }
    fs::directory_iterator files(path, error);
    if (error) {
      refuse(path, fmt::format("the checkpoint cannot be written there: {}", error.message()));
    }
    for (const fs::directory_entry& file : files) {
      const std::string inside = file.path().filename().string();
      if (!is_checkpoint_file(inside)) {
        refuse(path, fmt::format("a checkpoint replaces this folder, but '{}' in it is no part of "
                                 "one; move it away or name another folder in run.checkpoint",
                                 inside));
      }
    }
  }
}

void write_checkpoint(const fs::path& folder, const Checkpoint& checkpoint, FileActions& actions) {
  const fs::path made = partial(folder);
  take_back_name(folder, actions);
  actions.remove(made);
  try {
    actions.make_folder(made);
    for (size_t i = 0; i < checkpoint.leaves.size(); ++i) {
      actions.write(made / leaf_file(i), format_npy(checkpoint.leaves[i]));
    }
    actions.write(made / kLosses, std::as_bytes(std::span(checkpoint.losses)));
    const std::string index = index_text(checkpoint);
    actions.write(made / kIndex, std::as_bytes(std::span(index)));
    actions.sync(made);
    if (is_there(folder) && !actions.exchange(made, folder)) {
      actions.remove(replaced(folder));
      actions.rename(folder, replaced(folder));
    }
    if (!is_there(folder)) {
      actions.rename(made, folder);
    }
    actions.sync(folder.parent_path());
  } catch (const Error&) {
    // What is there of the new one would fill the disk; the old one keeps its name.
    try {
      take_back_name(folder, actions);
      if (is_there(folder)) {
        actions.remove(made);
      }
    } catch (const Error&) {
      // The next attempt cleans up.
    }
    throw;
  }
  actions.remove(made);
  actions.remove(replaced(folder));
}

void write_checkpoint(const fs::path& folder, const Checkpoint& checkpoint) {
  FileActions actions;
  write_checkpoint(folder, checkpoint, actions);
}

Checkpoint read_checkpoint(const fs::path& folder) {
  std::optional<Error> wrong;
  for (const fs::path& path : {folder, partial(folder), replaced(folder)}) {
    if (!is_there(path)) {
      continue;
    }
    try {
      return read_folder(path);
    } catch (const Error& error) {
      wrong = wrong.value_or(error);
    }
  }
  if (wrong) {
    throw Error(*wrong);
  }
  refuse(folder, "no checkpoint to resume from; without --resume the run starts anew");
}

std::optional<int64_t> checkpoint_step(const fs::path& folder) {
  try {
    return read_checkpoint(folder).step;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace tpu::training
