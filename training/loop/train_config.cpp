// Reading of training configurations: every key is known or refused.
#include "loop/train_config.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <utility>

#include "check/checked.hpp"
#include "check/refuse.hpp"
#include "file/files.hpp"
#include "loop/config_change.hpp"
#include "loop/config_section.hpp"
#include "tpu/error.hpp"

namespace tpu::training {

using driver::DType;
using driver::Error;
using driver::read_file;
using driver::refuse;

namespace {

constexpr int64_t kMaxInitEntries = 65536;
constexpr int64_t kMaxClasses = int64_t{1} << 31;  // labels are i32
constexpr int64_t kMostCores = 1024;
constexpr int64_t kMaxSteps = int64_t{1} << 40;
constexpr int64_t kMaxSide = int64_t{1} << 20;  // of an image
constexpr int64_t kMostTurns = int64_t{1} << 20;
constexpr int64_t kMaxBuffer = int64_t{1} << 32;  // more examples than an order knows
constexpr double kMostDivide = 1e30;
constexpr double kMostRate = 1e6;

std::string resolve(const std::string& path, const std::string& folder) {
  return (std::filesystem::path(folder) / path).lexically_normal().string();
}

// The number behind "constant:" or "normal:", or nothing when it is none.
std::optional<double> number_behind(std::string_view entry, std::string_view word) {
  double value = 0;
  const char* first = entry.data() + word.size();
  const char* last = entry.data() + entry.size();
  const auto [end, error] = std::from_chars(first, last, value);
  return error == std::errc() && end == last && std::isfinite(value) ? std::optional(value)
                                                                     : std::nullopt;
}

Init one_init(const std::string& entry, const std::string& kind) {
  constexpr std::array<std::pair<std::string_view, InitKind>, 4> kKinds = {
      {{"zeros", InitKind::kZeros},
       {"ones", InitKind::kOnes},
       {"he_normal", InitKind::kHeNormal},
       {"glorot_uniform", InitKind::kGlorotUniform}}};
  for (const auto& [name, value] : kKinds) {
    if (name == kind) {
      return {value, {}, 0};
    }
  }
  constexpr std::array<std::pair<std::string_view, InitKind>, 2> kNumbers = {
      {{"constant:", InitKind::kConstant}, {"normal:", InitKind::kNormal}}};
  for (const auto& [word, value] : kNumbers) {
    if (kind.starts_with(word)) {
      const std::optional<double> number = number_behind(kind, word);
      if (!number || (value == InitKind::kNormal && *number < 0)) {
        refuse(fmt::format("init \"{}\": expected a number after \"{}\"", entry, word));
      }
      return {value, {}, *number};
    }
  }
  refuse(fmt::format(
      "init \"{}\" is unknown; known: zeros, ones, constant:NUMBER, normal:DEVIATION, he_normal, "
      "glorot_uniform, file:PATH.npy",
      entry));
}

void read_program(const toml::table& root, const std::string& name, const std::string& folder,
                  TrainConfig& config) {
  Section program = Section::of(root, "program", name);
  config.train = resolve(*program.text("train", true), folder);
  if (const auto eval = program.text("eval", false)) {
    config.eval = resolve(*eval, folder);
  }
  config.train_signature.arguments = program.texts("arguments", false);
  config.train_signature.results = program.texts("results", false);
  config.eval_signature.arguments = program.texts("eval_arguments", false);
  config.eval_signature.results = program.texts("eval_results", false);
  program.check_all();
}

void read_state(const toml::table& root, const std::string& name, const std::string& folder,
                TrainConfig& config) {
  Section state = Section::of(root, "state", name);
  config.seed = static_cast<uint64_t>(state.number("seed", true, {0}, 0));
  if (const auto from = state.text("from", false)) {
    config.state_from = resolve(*from, folder);
    for (const char* other : {"init", "weights", "weights_map"}) {
      if (state.has(other)) {
        refuse(fmt::format("{}: state.from gives the whole state; leave state.{} out",
                           state.where(other), other));
      }
    }
  }
  for (const std::string& entry : state.texts("init", config.state_from.empty())) {
    try {
      for (Init& init : parse_init(entry, folder)) {
        config.init.push_back(std::move(init));
      }
      if (config.init.size() > static_cast<size_t>(kMaxInitEntries)) {
        refuse(fmt::format("more than {} state leaves", kMaxInitEntries));
      }
    } catch (const Error& error) {
      refuse(fmt::format("{}: {}", state.where("init"), error.message()));
    }
  }
  if (const auto weights = state.text("weights", false)) {
    config.weights = resolve(*weights, folder);
  }
  if (const auto map = state.text("weights_map", false)) {
    config.weights_map = resolve(*map, folder);
    if (config.weights.empty()) {
      refuse(fmt::format("{}: state.weights_map needs state.weights", state.where("weights_map")));
    }
  }
  state.check_all();
}

std::vector<InputConfig> read_inputs(Section& data, const std::string& folder,
                                     const std::vector<std::string>& records) {
  std::vector<InputConfig> inputs;
  for (Section& table : data.tables("input")) {
    InputConfig input;
    input.name = *table.text("name", true);
    if (records.empty()) {
      input.file = resolve(*table.text("file", true), folder);
      input.member = table.text("member", false).value_or("");
    } else {
      input.file = fmt::format("{}", fmt::join(records, ", "));
    }
    input.classes = table.number("classes", false, {1, kMaxClasses}, 0);
    input.classes_from = table.where("classes");
    input.divide = table.real("divide", false, {1e-30, kMostDivide}, input.divide);
    input.stored_shape = table.numbers("stored_shape", {1, kMaxSide});
    input.crop_padding = table.number("crop_padding", false, {0, kMaxSide}, 0);
    input.flip = table.flag("flip", false);
    table.check_all();
    constexpr std::array<std::string_view, 5> kTaken = {"state", "mask", "loss", "learning_rate",
                                                        "-"};
    const bool twice = std::any_of(inputs.begin(), inputs.end(), [&](const InputConfig& other) {
      return other.name == input.name;
    });
    if (twice || input.name.starts_with("state") ||
        std::find(kTaken.begin(), kTaken.end(), input.name) != kTaken.end()) {
      refuse(fmt::format("{}: the name \"{}\" is taken; give the input another one",
                         table.where("name"), input.name));
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

void read_data(const toml::table& root, const std::string& name, const std::string& folder,
               TrainConfig& config) {
  Section data = Section::of(root, "data", name);
  for (const std::string& pattern : data.texts("records", false)) {
    config.records.push_back(input::pattern_in(folder, pattern));
  }
  if (data.has("records") && config.records.empty()) {
    refuse(
        fmt::format("{}: data.records names no files; write record files into the list, such as "
                    "[\"train-*.tfrecord\"], or leave the key out and give each input a file",
                    data.where("records")));
  }
  config.inputs = read_inputs(data, folder, config.records);
  if (config.inputs.empty() && !config.records.empty()) {
    refuse(fmt::format("{}: data.records needs [[data.input]], one for each feature",
                       data.where("records")));
  }
  if (config.inputs.empty()) {
    const std::string images = resolve(*data.text("images", true), folder);
    const std::string labels = resolve(*data.text("labels", true), folder);
    config.inputs =
        classifier_inputs(images, labels, data.number("classes", false, {1, kMaxClasses}, 0));
  } else if (data.has("images") || data.has("labels")) {
    refuse(
        fmt::format("{}: data.images and data.labels are short for two of [[data.input]]; "
                    "give the ones or the others",
                    data.where(data.has("images") ? "images" : "labels")));
  }
  config.split_seed = static_cast<uint64_t>(data.number("split_seed", true, {0}, 0));
  config.eval_count = static_cast<uint64_t>(data.number("eval_count", true, {0}, 0));
  const int64_t shuffle = data.number("shuffle", false, {0, kMaxBuffer}, -1);
  if (shuffle >= 0) {
    config.shuffle = static_cast<uint64_t>(shuffle);
  }
  config.interleave.files =
      static_cast<uint32_t>(data.number("interleave_files", false, {1, kMostTurns}, 1));
  config.interleave.block =
      static_cast<uint32_t>(data.number("interleave_block", false, {1, kMostTurns}, 16));
  if (config.records.empty() && config.interleave.files > 1) {
    refuse(fmt::format("{}: data.interleave_files is of record files; data.records names none",
                       data.where("interleave_files")));
  }
  config.input_threads = static_cast<unsigned>(data.number("threads", false, {1, 256}, 2));
  config.prefetch = static_cast<unsigned>(data.number("prefetch", false, {1, 4096}, 4));
  data.check_all();
  if (!config.eval.empty() && config.eval_count == 0) {
    refuse(fmt::format("{}: data.eval_count must be at least 1 when there is an eval program",
                       data.where("eval_count")));
  }
}

CheckpointRules checkpoint_rules(Section& run) {
  CheckpointRules rules;
  rules.every_steps = run.number("checkpoint_every", false, {1}, 0);
  rules.every_seconds = run.number("checkpoint_seconds", false, {1}, 0);
  rules.keep = run.number("checkpoint_keep", false, {1}, rules.keep);
  if (const auto best = run.text("checkpoint_best", false)) {
    constexpr std::string_view kLargest = "largest ";
    constexpr std::string_view kSmallest = "smallest ";
    rules.best_rises = best->starts_with(kLargest);
    const size_t word = rules.best_rises ? kLargest.size() : kSmallest.size();
    if ((!rules.best_rises && !best->starts_with(kSmallest)) || best->size() == word) {
      refuse(
          fmt::format("{}: run.checkpoint_best must be \"largest METRIC\" or \"smallest "
                      "METRIC\", for example \"largest accuracy\"",
                      run.where("checkpoint_best")));
    }
    rules.best = *best;
    rules.best_metric = best->substr(word);
  }
  if (const auto errors = run.text("checkpoint_errors", false)) {
    rules.stop_on_error = *errors == "stop";
    if (!rules.stop_on_error && *errors != "warn") {
      refuse(fmt::format("{}: run.checkpoint_errors must be \"warn\" or \"stop\"",
                         run.where("checkpoint_errors")));
    }
  }
  return rules;
}

// One configuration for any number of cores: the batch grows with them where that is wanted, and
// file names of programs may hold both.
void apply_cores(Section& run, TrainConfig& config) {
  if (config.scale_batch) {
    if (config.cores == 0) {
      refuse(fmt::format("{}: run.scale_batch needs run.cores, the factor of run.batch",
                         run.where("scale_batch")));
    }
    config.batch = driver::need_fit(driver::checked_product(config.batch, config.cores),
                                    "run.batch times run.cores");
  }
  const auto fill_in = [&](std::string& path, const std::string& mark, int64_t value) {
    for (size_t at = path.find(mark); at != std::string::npos; at = path.find(mark)) {
      if (value == 0) {
        refuse(fmt::format("{}: {}: {} in the name of a program needs run.cores",
                           run.where("cores"), path, mark));
      }
      path.replace(at, mark.size(), std::to_string(value));
    }
  };
  for (std::string* path : {&config.train, &config.eval}) {
    fill_in(*path, "{batch}", config.batch);
    fill_in(*path, "{cores}", config.cores);
  }
}

FaultRules fault_rules(Section& run) {
  FaultRules rules;
  if (const auto word = run.text("on_fault", false)) {
    rules.replay = *word == "replay";
    if (!rules.replay && *word != "stop") {
      refuse(fmt::format("{}: run.on_fault must be \"stop\" or \"replay\"", run.where("on_fault")));
    }
  }
  if (run.has("max_replays") && !rules.replay) {
    refuse(fmt::format("{}: run.max_replays needs run.on_fault = \"replay\"",
                       run.where("max_replays")));
  }
  rules.max_replays = run.number("max_replays", false, {1}, rules.max_replays);
  rules.compare_replicas = run.number("compare_replicas", false, {0}, 0);
  return rules;
}

void read_run(const toml::table& root, const std::string& name, TrainConfig& config) {
  Section run = Section::of(root, "run", name);
  config.batch = run.number("batch", true, {1}, 0);
  config.epochs = run.number("epochs", true, {1, kMaxEpochs}, 0);
  config.eval_every = run.number("eval_every", false, {0}, 0);
  config.steps_per_execution =
      run.number("steps_per_execution", false, {1, kMaxStepsPerExecution}, 1);
  if (const auto checkpoint = run.text("checkpoint", false)) {
    config.checkpoint = *checkpoint;  // relative to the folder of the run
  }
  config.stop_on_nan = run.flag("stop_on_nan", true);
  config.faults = fault_rules(run);
  config.checkpoints = checkpoint_rules(run);
  config.cores = run.number("cores", false, {1, kMostCores}, 0);
  config.scale_batch = run.flag("scale_batch", false);
  run.check_all();
  apply_cores(run, config);
}

LearningRateConfig read_learning_rate(const toml::table& root, const std::string& name) {
  Section section = Section::of(root, "learning_rate", name);
  LearningRateConfig rate;
  constexpr std::array<std::pair<std::string_view, Schedule>, 4> kSchedules = {
      {{"constant", Schedule::kConstant},
       {"linear", Schedule::kLinear},
       {"cosine", Schedule::kCosine},
       {"one_cycle", Schedule::kOneCycle}}};
  const std::string word = section.text("schedule", false).value_or("constant");
  const auto* known = std::find_if(kSchedules.begin(), kSchedules.end(),
                                   [&](const auto& entry) { return entry.first == word; });
  if (known == kSchedules.end()) {
    refuse(
        fmt::format("{}: learning_rate.schedule = \"{}\" is unknown; known: constant, linear, "
                    "cosine, one_cycle",
                    section.where("schedule"), word));
  }
  rate.schedule = known->second;
  rate.value = section.real("value", true, {0, kMostRate}, 0);
  // One-cycle starts and ends far below its peak (Smith and Topin, 2017, as Keras and PyTorch do).
  const bool cycle = rate.schedule == Schedule::kOneCycle;
  rate.warmup_steps = section.number("warmup_steps", false, {0, kMaxSteps}, 0);
  rate.start = section.real("start", false, {0, kMostRate}, cycle ? rate.value / 25 : 0);
  rate.end = section.real("end", false, {0, kMostRate}, cycle ? rate.value / 250000 : 0);
  rate.steps = section.number("steps", false, {1, kMaxSteps}, 0);
  rate.scale_with_cores = section.flag("scale_with_cores", false);
  rate.leaf = section.text("leaf", false).value_or("");
  section.check_all();
  if (rate.steps > 0 && rate.warmup_steps > rate.steps) {
    refuse(fmt::format("{}: learning_rate.warmup_steps is more than learning_rate.steps",
                       section.where("warmup_steps")));
  }
  return rate;
}

EarlyStop read_early_stop(const toml::table& root, const std::string& name,
                          const TrainConfig& config) {
  Section section = Section::of(root, "early_stop", name);
  EarlyStop stop;
  stop.metric = section.text("metric", false).value_or(stop.metric);
  const std::string better =
      section.text("better", false).value_or(stop.metric == "accuracy" ? "more" : "less");
  if (better != "more" && better != "less") {
    refuse(
        fmt::format("{}: early_stop.better must be \"more\" or \"less\"", section.where("better")));
  }
  stop.rises = better == "more";
  stop.patience = section.number("patience", true, {1, kMaxEpochs}, 1);
  stop.min_change = section.real("min_change", false, {0}, 0);
  section.check_all();
  if (config.eval.empty() || config.eval_every == 0) {
    refuse(
        fmt::format("{}: [early_stop] looks at evaluations; give program.eval and "
                    "run.eval_every",
                    section.where("metric")));
  }
  return stop;
}

}  // namespace

std::vector<InputConfig> classifier_inputs(const std::string& images, const std::string& labels,
                                           int64_t classes) {
  std::vector<InputConfig> inputs(2);
  inputs[0].name = "images";
  inputs[0].file = images;
  inputs[0].types = {DType::kF32, DType::kBf16, DType::kU8};
  inputs[1].name = "labels";
  inputs[1].file = labels;
  inputs[1].classes = classes;
  inputs[1].types = {DType::kI32};
  inputs[1].numbers = true;
  return inputs;
}

std::vector<Init> parse_init(const std::string& entry, const std::string& folder) {
  constexpr std::string_view kFile = "file:";
  if (entry.starts_with(kFile)) {
    if (entry.size() == kFile.size()) {
      refuse("init \"file:\" names no file");
    }
    return {{InitKind::kFile, resolve(entry.substr(kFile.size()), folder), 0}};
  }
  const size_t star = entry.find('*');
  int64_t count = 1;
  if (star != std::string::npos) {
    const char* first = entry.data() + star + 1;
    const char* last = entry.data() + entry.size();
    const auto [end, error] = std::from_chars(first, last, count);
    if (error != std::errc() || end != last || count < 1 || count > kMaxInitEntries) {
      refuse(
          fmt::format("init \"{}\": expected a count in 1..{} after '*'", entry, kMaxInitEntries));
    }
  }
  return std::vector<Init>(static_cast<size_t>(count), one_init(entry, entry.substr(0, star)));
}

TrainConfig parse_train_config(const std::string& text, const std::string& name,
                               const std::string& folder, const std::vector<std::string>& changes) {
  toml::table root;
  try {
    root = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    refuse(fmt::format("{}:{}: {}", name, error.source().begin.line, error.description()));
  }
  change_config(root, changes);
  constexpr std::array<std::string_view, 6> kSections = {"program", "state",         "data",
                                                         "run",     "learning_rate", "early_stop"};
  for (const auto& [key, node] : root) {
    if (std::find(kSections.begin(), kSections.end(), key.str()) == kSections.end()) {
      refuse(fmt::format("{}: unknown section [{}]; known: {}", place_of(node, name), key.str(),
                         fmt::join(kSections, ", ")));
    }
  }
  TrainConfig config;
  read_program(root, name, folder, config);
  read_state(root, name, folder, config);
  read_data(root, name, folder, config);
  read_run(root, name, config);
  if (root.contains("learning_rate")) {
    config.learning_rate = read_learning_rate(root, name);
  }
  if (root.contains("early_stop")) {
    config.early_stop = read_early_stop(root, name, config);
  }
  return config;
}

TrainConfig load_train_config(const std::string& path, const std::vector<std::string>& changes) {
  const std::vector<std::byte> bytes = read_file(path);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return parse_train_config(text, path, std::filesystem::path(path).parent_path().string(),
                            changes);
}

}  // namespace tpu::training
