// Reading of training configurations: every key is known or refused.
#include "loop/train_config.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <limits>

#include "files/files.hpp"
#include "tpu/error.hpp"

namespace tpu::training {

using driver::Error;
using driver::ErrorCode;
using driver::read_file;
namespace {

constexpr int64_t kMaxInitEntries = 65536;
constexpr int64_t kMaxClasses = int64_t{1} << 31;  // labels are i32

[[noreturn]] void refuse_config(const std::string& text) {
  throw Error(ErrorCode::kInvalidArgument, text);
}

std::string resolve(const std::string& path, const std::string& folder) {
  return (std::filesystem::path(folder) / path).lexically_normal().string();
}

// One section of the file. Every key that is asked for is noted; check_all() refuses the others.
class Section {
 public:
  Section(const toml::table& root, std::string_view section, const std::string& file)
      : section_(section), file_(file) {
    const toml::node* node = root.get(section);
    if (node == nullptr) {
      refuse_config(fmt::format("{}: section [{}] is missing", file, section));
    }
    table_ = node->as_table();
    if (table_ == nullptr) {
      refuse_config(fmt::format("{}: '{}' must be a section", place(*node), section));
    }
  }

  std::optional<std::string> text(std::string_view key, bool required) {
    const toml::node* node = find(key, required);
    if (node == nullptr) {
      return std::nullopt;
    }
    const auto value = node->value_exact<std::string>();
    if (!value || value->empty()) {
      refuse_config(fmt::format("{}: {}.{} must be a text", place(*node), section_, key));
    }
    return value;
  }

  struct Range {
    int64_t low;
    int64_t high = std::numeric_limits<int64_t>::max();
  };

  int64_t number(std::string_view key, bool required, Range range, int64_t fallback) {
    const toml::node* node = find(key, required);
    if (node == nullptr) {
      return fallback;
    }
    const auto value = node->value_exact<int64_t>();
    if (!value || *value < range.low) {
      refuse_config(fmt::format("{}: {}.{} must be an integer of at least {}", place(*node),
                                section_, key, range.low));
    }
    if (*value > range.high) {
      refuse_config(
          fmt::format("{}: {}.{} must be at most {}", place(*node), section_, key, range.high));
    }
    return *value;
  }

  std::vector<std::string> texts(std::string_view key) {
    const toml::node* node = find(key, true);
    const toml::array* array = node->as_array();
    std::vector<std::string> values;
    if (array == nullptr) {
      refuse_config(fmt::format("{}: {}.{} must be a list of texts", place(*node), section_, key));
    }
    for (const toml::node& entry : *array) {
      const auto value = entry.value_exact<std::string>();
      if (!value) {
        refuse_config(
            fmt::format("{}: {}.{} must be a list of texts", place(entry), section_, key));
      }
      values.push_back(*value);
    }
    return values;
  }

  std::string where(std::string_view key) const {
    const toml::node* node = table_->get(key);
    return node == nullptr ? file_ : place(*node);
  }

  void check_all() const {
    for (const auto& [key, node] : *table_) {
      if (std::find(known_.begin(), known_.end(), key.str()) == known_.end()) {
        refuse_config(fmt::format("{}: unknown key {}.{}; known: {}", place(node), section_,
                                  key.str(), fmt::join(known_, ", ")));
      }
    }
  }

 private:
  const toml::node* find(std::string_view key, bool required) {
    known_.emplace_back(key);
    const toml::node* node = table_->get(key);
    if (node == nullptr && required) {
      refuse_config(fmt::format("{}: {}.{} is missing", file_, section_, key));
    }
    return node;
  }

  std::string place(const toml::node& node) const {
    return fmt::format("{}:{}", file_, node.source().begin.line);
  }

  std::string section_;
  std::string file_;
  const toml::table* table_ = nullptr;
  std::vector<std::string> known_;
};

}  // namespace

std::vector<Init> parse_init(const std::string& entry, const std::string& folder) {
  constexpr std::string_view kFile = "file:";
  if (entry.starts_with(kFile)) {
    if (entry.size() == kFile.size()) {
      refuse_config("init \"file:\" names no file");
    }
    return {{InitKind::kFile, resolve(entry.substr(kFile.size()), folder)}};
  }
  const size_t star = entry.find('*');
  const std::string kind = entry.substr(0, star);
  int64_t count = 1;
  if (star != std::string::npos) {
    const char* first = entry.data() + star + 1;
    const char* last = entry.data() + entry.size();
    const auto [end, error] = std::from_chars(first, last, count);
    if (error != std::errc() || end != last || count < 1 || count > kMaxInitEntries) {
      refuse_config(fmt::format("init \"{}\": a count in 1..{} is expected behind '*'", entry,
                                kMaxInitEntries));
    }
  }
  constexpr std::array<std::pair<std::string_view, InitKind>, 4> kKinds = {
      {{"zeros", InitKind::kZeros},
       {"ones", InitKind::kOnes},
       {"he_normal", InitKind::kHeNormal},
       {"glorot_uniform", InitKind::kGlorotUniform}}};
  for (const auto& [name, value] : kKinds) {
    if (name == kind) {
      return std::vector<Init>(static_cast<size_t>(count), Init{value, {}});
    }
  }
  refuse_config(fmt::format(
      "init \"{}\" is unknown; known: zeros, ones, he_normal, glorot_uniform, file:PATH.npy",
      entry));
}

TrainConfig parse_train_config(const std::string& text, const std::string& name,
                               const std::string& folder) {
  toml::table root;
  try {
    root = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    refuse_config(fmt::format("{}:{}: {}", name, error.source().begin.line, error.description()));
  }
  constexpr std::array<std::string_view, 4> kSections = {"program", "state", "data", "run"};
  for (const auto& [key, node] : root) {
    if (std::find(kSections.begin(), kSections.end(), key.str()) == kSections.end()) {
      refuse_config(fmt::format("{}:{}: unknown section [{}]; known: {}", name,
                                node.source().begin.line, key.str(), fmt::join(kSections, ", ")));
    }
  }
  TrainConfig config;
  Section program(root, "program", name);
  config.train = resolve(*program.text("train", true), folder);
  if (const auto eval = program.text("eval", false)) {
    config.eval = resolve(*eval, folder);
  }
  program.check_all();

  Section state(root, "state", name);
  config.seed = static_cast<uint64_t>(state.number("seed", true, {0}, 0));
  for (const std::string& entry : state.texts("init")) {
    try {
      for (Init& init : parse_init(entry, folder)) {
        config.init.push_back(std::move(init));
      }
      if (config.init.size() > static_cast<size_t>(kMaxInitEntries)) {
        refuse_config(fmt::format("more than {} state leaves", kMaxInitEntries));
      }
    } catch (const Error& error) {
      refuse_config(fmt::format("{}: {}", state.where("init"), error.message()));
    }
  }
  state.check_all();

  Section data(root, "data", name);
  config.images = resolve(*data.text("images", true), folder);
  config.labels = resolve(*data.text("labels", true), folder);
  config.split_seed = static_cast<uint64_t>(data.number("split_seed", true, {0}, 0));
  config.eval_count = static_cast<uint64_t>(data.number("eval_count", true, {0}, 0));
  config.classes = data.number("classes", false, {1, kMaxClasses}, 0);
  data.check_all();

  Section run(root, "run", name);
  config.batch = run.number("batch", true, {1}, 0);
  config.epochs = run.number("epochs", true, {1, kMaxEpochs}, 0);
  config.eval_every = run.number("eval_every", false, {0}, 0);
  if (const auto checkpoint = run.text("checkpoint", false)) {
    config.checkpoint = *checkpoint;  // relative to the folder of the run
  }
  run.check_all();
  if (!config.eval.empty() && config.eval_count == 0) {
    refuse_config(
        fmt::format("{}: data.eval_count must be at least 1 when there is an eval program",
                    data.where("eval_count")));
  }
  return config;
}

TrainConfig load_train_config(const std::string& path) {
  const std::vector<std::byte> bytes = read_file(path);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return parse_train_config(text, path, std::filesystem::path(path).parent_path().string());
}

}  // namespace tpu::training
