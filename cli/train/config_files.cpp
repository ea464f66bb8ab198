// As the configuration has them: paths are resolved there.
#include "cli/train/config_files.hpp"

#include <filesystem>

#include "checkpoint/checkpoint_folder.hpp"
#include "input/records/record_source.hpp"

namespace tpu::driver {

std::vector<std::string> config_files(const training::TrainConfig& config) {
  std::vector<std::string> files = {config.train};
  for (const training::InputConfig& input : config.inputs) {
    if (config.records.empty()) {
      files.push_back(input.file);
    }
  }
  for (const std::string& file : input::find_files(config.records)) {
    files.push_back(file);
  }
  if (!config.eval.empty()) {
    files.push_back(config.eval);
  }
  if (std::filesystem::is_directory(config.state_from)) {
    const std::filesystem::path folder = config.state_from;
    for (const training::CheckpointName& name : training::checkpoint_names(folder)) {
      files.push_back((folder / name.text()).string());
    }
  } else if (!config.state_from.empty()) {
    files.push_back(config.state_from);
  }
  for (const std::string& file : {config.weights, config.weights_map}) {
    if (!file.empty()) {
      files.push_back(file);
    }
  }
  for (const training::Init& init : config.init) {
    if (init.kind == training::InitKind::kFile) {
      files.push_back(init.path);
    }
  }
  return files;
}

}  // namespace tpu::driver
