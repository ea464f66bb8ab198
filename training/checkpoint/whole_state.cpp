// Names are matched before any array is read.
#include "checkpoint/whole_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "check/refuse.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "file/files.hpp"
#include "format/npz.hpp"
#include "tpu/error.hpp"

namespace tpu::training {

using driver::Error;
using driver::ErrorCode;
using driver::HostArray;
using driver::ParameterInfo;
using driver::refuse;
using driver::type_text;
using Leaves = std::vector<ParameterInfo>;

namespace {

namespace fs = std::filesystem;

std::string called(size_t leaf, const Leaves& leaves) {
  const ParameterInfo& info = leaves[leaf];
  return fmt::format("{}{} {}", leaf, info.name.empty() ? "" : fmt::format(" ({})", info.name),
                     type_text(info.dtype, info.shape));
}

void check_leaf(const std::string& path, size_t leaf, const HostArray& value,
                const Leaves& leaves) {
  if (value.dtype != leaves[leaf].dtype || value.shape != leaves[leaf].shape) {
    refuse(fmt::format("{}: state leaf {} is {} there", path, called(leaf, leaves),
                       type_text(value.dtype, value.shape)));
  }
}

// The leaf that an array of this name goes to.
std::optional<size_t> leaf_of(const std::string& name, const Leaves& leaves) {
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (name == leaf_name(i) || name == fmt::format("arr_{}", i) ||
        (!name.empty() && name == leaves[i].name)) {
      return i;
    }
  }
  return std::nullopt;
}

std::vector<HostArray> load_npz(const std::string& path, const Leaves& leaves) {
  std::map<size_t, std::string> arrays;
  std::vector<std::string> wrong;
  for (const std::string& name : driver::npz_names(path)) {
    const std::optional<size_t> leaf = leaf_of(name, leaves);
    if (!leaf) {
      wrong.push_back(fmt::format("array \"{}\" matches no leaf", name));
    } else if (!arrays.emplace(*leaf, name).second) {
      wrong.push_back(fmt::format("arrays \"{}\" and \"{}\" both match leaf {}", arrays.at(*leaf),
                                  name, *leaf));
    }
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!arrays.contains(i)) {
      wrong.push_back(fmt::format("no array matches leaf {}", called(i, leaves)));
    }
  }
  if (!wrong.empty()) {
    refuse(
        fmt::format("{}: expected the whole state of the program, one array for each leaf, with "
                    "the name of the leaf in the program, \"state.0\" or \"arr_0\": {}",
                    path, fmt::join(wrong, "; ")));
  }
  std::vector<HostArray> values;
  for (const auto& [leaf, name] : arrays) {
    values.push_back(driver::read_npz(path, name));
    check_leaf(path, leaf, values.back(), leaves);
  }
  return values;
}

std::vector<CheckpointName> newest_first(const std::string& folder) {
  std::vector<CheckpointName> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (const auto name = CheckpointName::parse(entry.path().filename().string())) {
      names.push_back(*name);
    }
  }
  std::sort(names.rbegin(), names.rend());
  return names;
}

std::vector<HostArray> load_folder(const std::string& path, const Leaves& leaves,
                                   const std::function<void(const std::string&)>& say) {
  for (const CheckpointName& name : newest_first(path)) {
    const std::string file = (fs::path(path) / name.text()).string();
    std::vector<HostArray> values;
    try {
      values = read_checkpoint(file).leaves;
    } catch (const driver::UnreadableFile&) {
      throw;  // it may be as good as any
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidArgument) {
        throw;
      }
      say(fmt::format("{}; this checkpoint is skipped", error.message()));
      continue;
    }
    if (values.size() != leaves.size()) {
      refuse(fmt::format("{}: {} state leaves, the program has {}", file, values.size(),
                         leaves.size()));
    }
    for (size_t i = 0; i < leaves.size(); ++i) {
      check_leaf(file, i, values[i], leaves);
    }
    return values;
  }
  refuse(fmt::format("{}: no complete checkpoint in this folder", path));
}

}  // namespace

std::vector<HostArray> load_state(const std::string& path, const Leaves& leaves,
                                  const std::function<void(const std::string&)>& say) {
  return fs::is_directory(path) ? load_folder(path, leaves, say) : load_npz(path, leaves);
}

}  // namespace tpu::training
