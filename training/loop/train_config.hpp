// CONFIG.toml of `tpuboard train`. What the keys mean: docs/host_driver.md, "Training
// configuration".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tpu::training {

enum class InitKind : uint8_t { kZeros, kOnes, kHeNormal, kGlorotUniform, kFile };

struct Init {
  InitKind kind = InitKind::kZeros;
  std::string path;  ///< kFile; already relative to the working directory
};

struct TrainConfig {
  std::string train;
  std::string eval;  ///< empty: none
  uint64_t seed = 0;
  std::vector<Init> init;
  std::string images;
  std::string labels;
  uint64_t split_seed = 0;
  uint64_t eval_count = 0;
  int64_t classes = 0;                        ///< labels are 0 .. classes-1; 0: not known
  std::string classes_from = "data.classes";  ///< who says so, for error texts
  int64_t batch = 0;
  int64_t epochs = 0;
  int64_t eval_every = 0;  ///< epochs; 0: only at the end
  std::string checkpoint;  ///< empty: none
};

/// Throws Error (InvalidArgument) that names file, line and key.
TrainConfig load_train_config(const std::string& path);
/// As above; `name` is for error texts and `folder` for relative paths.
TrainConfig parse_train_config(const std::string& text, const std::string& name,
                               const std::string& folder);

/// Epochs of a run: each has its own stream of random numbers.
constexpr int64_t kMaxEpochs = int64_t{1} << 30;

/// One entry of `init`: "zeros", "he_normal*3", "file:w.npy". Throws Error.
std::vector<Init> parse_init(const std::string& entry, const std::string& folder);

}  // namespace tpu::training
