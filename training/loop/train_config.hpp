// CONFIG.toml of `tpuboard train`. What the keys mean: docs/training.md, "Training
// configuration".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "input/records/record_source.hpp"
#include "loop/learning_rate.hpp"
#include "tpu/types.hpp"

namespace tpu::training {

enum class InitKind : uint8_t {
  kZeros,
  kOnes,
  kConstant,
  kNormal,
  kHeNormal,
  kGlorotUniform,
  kFile
};

struct Init {
  InitKind kind = InitKind::kZeros;
  std::string path;  ///< kFile; already relative to the working directory
  double value = 0;  ///< kConstant; kNormal: the deviation
};

/// What the programs are fed: one array of all examples, [examples, ...].
struct InputConfig {
  std::string name;
  std::string file;     ///< for error texts where examples are records
  std::string member;   ///< of .npz and .safetensors; empty: the array of the input's name
  int64_t classes = 0;  ///< integers are 0 .. classes-1; 0: not known
  std::string classes_from = "data.classes";  ///< who says so, for error texts
  /// u8 that a program takes as f32 or bf16 are divided by it.
  double divide = 255;
  /// Images, [height, width, channels], in training: as in input::Feature.
  driver::Shape stored_shape = {};
  int64_t crop_padding = 0;
  bool flip = false;
  std::vector<driver::DType> types;  ///< in which a program may take it; empty: any
  bool numbers = false;              ///< one number an example, from 0 on: class numbers
};

/// The two inputs of an image classifier.
std::vector<InputConfig> classifier_inputs(const std::string& images, const std::string& labels,
                                           int64_t classes = 0);

/// What each argument and result of a program is (signature.hpp); empty: by convention.
struct SignatureConfig {
  std::vector<std::string> arguments;
  std::vector<std::string> results;
};

/// When training ends before its last epoch.
struct EarlyStop {
  std::string metric = "loss";  ///< of the evaluation
  bool rises = false;           ///< better is more
  int64_t patience = 1;         ///< evaluations without a better value
  double min_change = 0;        ///< better by less counts as no better
};

/// When checkpoints are written, and which of them stay.
struct CheckpointRules {
  int64_t every_steps = 0;    ///< 0: not by steps
  int64_t every_seconds = 0;  ///< of wall-clock time; 0: not by time
  int64_t keep = 2;           ///< the last ones
  std::string best;           ///< "largest METRIC", "smallest METRIC"; empty: none is the best
  std::string best_metric;    ///< of the evaluation
  bool best_rises = false;    ///< the largest value is the best
  bool stop_on_error = false;
};

/// What becomes of a run whose step failed on the board.
struct FaultRules {
  bool replay = false;      ///< it goes on at the last checkpoint, kept in memory; else it ends
  int64_t max_replays = 3;  ///< of a run
  /// Steps after which all copies of the state are compared, again and again; 0: never on the way.
  int64_t compare_replicas = 0;

  /// Whether they are compared behind step `step` of `steps`: also behind the last one.
  bool compares_after(int64_t step, int64_t steps) const {
    return compare_replicas > 0 && (step % compare_replicas == 0 || step == steps);
  }
};

struct TrainConfig {
  std::string train;
  std::string eval;  ///< empty: none
  SignatureConfig train_signature;
  SignatureConfig eval_signature;
  uint64_t seed = 0;
  std::vector<Init> init;
  std::string state_from;   ///< .npz or folder of checkpoints, instead of `init`; empty: none
  std::string weights;      ///< a safetensors file whose tensors go before `init`; empty: none
  std::string weights_map;  ///< which go where (weights.hpp); empty: by their names
  std::vector<InputConfig> inputs;
  std::vector<std::string> records;  ///< patterns of TFRecord files; empty: inputs are files
  uint64_t split_seed = 0;
  uint64_t eval_count = 0;
  /// Examples of the buffer that shuffles them, 0: as stored; none: every order is as likely.
  std::optional<uint64_t> shuffle;
  input::Interleave interleave = {};  ///< of the record files
  unsigned input_threads = 2;
  unsigned prefetch = 4;     ///< batches that are read or ready at a time
  int64_t batch = 0;         ///< of all cores together
  int64_t cores = 0;         ///< 0: as the programs say
  bool scale_batch = false;  ///< run.batch is that of one core; `batch` is that times `cores`
  int64_t epochs = 0;
  int64_t eval_every = 0;  ///< epochs; 0: only at the end
  int64_t steps_per_execution = 1;
  std::string checkpoint;  ///< empty: none
  CheckpointRules checkpoints;
  bool stop_on_nan = true;
  FaultRules faults;
  std::optional<LearningRateConfig> learning_rate;
  std::optional<EarlyStop> early_stop;
};

/// Throws Error (InvalidArgument) that names file, line and key. `changes`: keys with another value
/// than the file's (change_config()).
TrainConfig load_train_config(const std::string& path,
                              const std::vector<std::string>& changes = {});
/// As above; `name` is for error texts and `folder` for relative paths.
TrainConfig parse_train_config(const std::string& text, const std::string& name,
                               const std::string& folder,
                               const std::vector<std::string>& changes = {});

/// Epochs of a run: each has its own stream of random numbers.
constexpr int64_t kMaxEpochs = int64_t{1} << 30;
/// Most steps of one launch.
constexpr int64_t kMaxStepsPerExecution = 1'000'000;

/// One entry of `init`: "zeros", "he_normal*3", "constant:0.1", "file:w.npy". Throws Error.
std::vector<Init> parse_init(const std::string& entry, const std::string& folder);

}  // namespace tpu::training
