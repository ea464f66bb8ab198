// As the configuration has them: paths are resolved there.
#include "cli/train/config_files.hpp"

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
  for (const std::string& file : {config.state_from, config.weights, config.weights_map}) {
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
