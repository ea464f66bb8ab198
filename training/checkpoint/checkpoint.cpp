// Metadata of the file: "tpuboard_checkpoint" (version), "step", "run" (JSON), "sha256" (of all
// other metadata and of every tensor with its name and type).
#include "checkpoint/checkpoint.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "check/checked.hpp"
#include "checkpoint/tensors.hpp"
#include "format/digest.hpp"
#include "format/json_input.hpp"
#include "tpu/error.hpp"

namespace tpu::training {

using driver::Digest;
using driver::DType;
using driver::Error;
using driver::ErrorCode;
using driver::HostArray;
using driver::HostView;
using driver::JsonInput;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Metadata = std::map<std::string, std::string>;

constexpr const char* kVersionKey = "tpuboard_checkpoint";
constexpr const char* kVersion = "2";  // 1 was a folder of .npy files
constexpr const char* kDigestKey = "sha256";
constexpr const char* kStepKey = "step";
constexpr const char* kRunKey = "run";
constexpr const char* kLosses = "losses";
const std::string kTest = "test_";  // in front of the names of an evaluation's metrics

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: damaged: {}", path, what));
}

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

double null_or_number(const JsonInput& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.as<double>();
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

EpochResult epoch_of(const JsonInput& json) {
  EpochResult epoch;
  epoch.epoch = json.at("epoch").as<int64_t>();
  epoch.train_loss = null_or_number(json.at("train_loss"));
  epoch.whole = true;
  for (const auto& [key, value] : json.members()) {
    if (key.starts_with(kTest)) {
      epoch.eval = epoch.eval.value_or(EvalResult());
      epoch.eval->metrics.push_back({key.substr(kTest.size()), null_or_number(value)});
    }
  }
  return epoch;
}

Json run_json(const Checkpoint& checkpoint) {
  Json json;
  json["leaves"] = checkpoint.leaves.size();
  json["state_seed"] = checkpoint.state_seed;
  json["order"] = {{"split_seed", checkpoint.order.split_seed},
                   {"examples", checkpoint.order.examples},
                   {"eval_count", checkpoint.order.eval_count},
                   {"batch", checkpoint.order.batch}};
  json["input"] = checkpoint.input;
  json["program"] = checkpoint.parts.program;
  json["data"] = checkpoint.parts.data;
  json["board"] = checkpoint.parts.board;
  json["cores"] = checkpoint.parts.cores;
  if (checkpoint.best) {
    json["best"] = {{"rule", checkpoint.best->rule},
                    {"step", checkpoint.best->step},
                    {"value", checkpoint.best->value}};
  }
  json["epochs"] = Json::array();
  for (const EpochResult& epoch : checkpoint.epochs) {
    json["epochs"].push_back(epoch_json(epoch));
  }
  return json;
}

// All but the tensors; the digest has been checked, so that only another program can have written
// what does not fit.
size_t take_run(const JsonInput& json, Checkpoint& checkpoint) {
  checkpoint.state_seed = json.at("state_seed").as<uint64_t>();
  const JsonInput order = json.at("order");
  checkpoint.order = {.split_seed = order.at("split_seed").as<uint64_t>(),
                      .examples = order.at("examples").as<uint64_t>(),
                      .eval_count = order.at("eval_count").as<uint64_t>(),
                      .batch = order.at("batch").as<int64_t>()};
  if (const JsonInput input = json.at("input"); input.there()) {  // older ones have none
    checkpoint.input = input.as<std::string>();
  }
  checkpoint.parts = {.program = json.at("program").as<std::string>(),
                      .data = json.at("data").as<std::string>(),
                      .board = json.at("board").as<std::string>(),
                      .cores = json.at("cores").as<int64_t>()};
  if (const JsonInput best = json.at("best"); best.there()) {
    checkpoint.best = BestStep{.rule = best.at("rule").as<std::string>(),
                               .step = best.at("step").as<int64_t>(),
                               .value = best.at("value").as<double>()};
  }
  for (const JsonInput& epoch : json.at("epochs").elements()) {
    checkpoint.epochs.push_back(epoch_of(epoch));
  }
  return json.at("leaves").as<size_t>();
}

// A JSON text of the metadata.
Json json_of(const TensorFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    damaged(file.path(), fmt::format("expected \"{}\" in its metadata, found no such key", key));
  }
  return JsonInput::parse(found->second);
}

class FileDigest {
 public:
  explicit FileDigest(const Metadata& metadata) {
    for (const auto& [key, value] : metadata) {
      if (key != kDigestKey) {
        add_text(key);
        add_text(value);
      }
    }
  }
  void add(const std::string& name, DType dtype, const driver::Shape& shape,
           std::span<const std::byte> bytes) {
    add_text(name);
    digest_.begin(dtype, shape);
    digest_.add_bytes(bytes);
  }
  std::string finish() { return digest_.finish(); }

 private:
  // With its final zero, so that texts do not run together.
  void add_text(const std::string& text) {
    digest_.add_bytes(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
  }
  Digest digest_;
};

NamedViews views_of(const Checkpoint& checkpoint) {
  NamedViews views;
  for (size_t i = 0; i < checkpoint.leaves.size(); ++i) {
    views.emplace_back(leaf_name(i), checkpoint.leaves[i]);
  }
  views.emplace_back(kLosses,
                     HostView(DType::kF32, {static_cast<int64_t>(checkpoint.losses.size())},
                              std::as_bytes(std::span(checkpoint.losses))));
  return views;
}

// In the order of names, since a file has its tensors in another one than a checkpoint.
template <typename Tensors, typename Add>
void in_order_of_names(const Tensors& tensors, Add add) {
  std::map<std::string_view, size_t> names;
  for (size_t i = 0; i < tensors.size(); ++i) {
    names[std::string_view(tensors[i].first)] = i;
  }
  for (const auto& [name, at] : names) {
    add(tensors[at].first, tensors[at].second);
  }
}

// Throws when the bytes are not those that were written.
void check_digest(const TensorFile& file) {
  const auto said = file.metadata().find(kDigestKey);
  FileDigest digest(file.metadata());
  std::vector<std::pair<std::string, const spec::Tensor*>> tensors;
  for (const spec::Tensor& tensor : file.tensors()) {
    tensors.emplace_back(tensor.name, &tensor);
  }
  in_order_of_names(tensors, [&](const std::string& name, const spec::Tensor* tensor) {
    const auto dtype = board_dtype(tensor->dtype);
    if (!dtype) {
      damaged(file.path(),
              fmt::format("tensor \"{}\" has elements of type {}", name, tensor->dtype));
    }
    digest.add(name, *dtype, tensor->shape, file.bytes(*tensor));
  });
  file.check();
  if (said == file.metadata().end() || digest.finish() != said->second) {
    damaged(file.path(), "its bytes do not have the SHA-256 that it names");
  }
}

HostArray tensor_of(const TensorFile& file, const std::string& name) {
  const spec::Tensor* tensor = file.find(name);
  if (tensor == nullptr) {
    damaged(file.path(), fmt::format("tensor \"{}\" is missing", name));
  }
  return file.read(*tensor);
}

void need_version(const TensorFile& file) {
  const auto version = file.metadata().find(kVersionKey);
  if (version == file.metadata().end()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: expected a checkpoint of `tpuboard train`, found another safetensors file",
                    file.path()));
  }
  if (version->second != kVersion) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{}: a checkpoint of form {}; this tpuboard reads form {}", file.path(),
                            version->second, kVersion));
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

std::optional<size_t> leaf_not_finite(const std::vector<HostArray>& leaves) {
  const auto holds_ones = [](const HostArray& leaf, auto exponent) {
    using Bits = decltype(exponent);
    Bits bits = 0;
    bool found = false;
    for (size_t at = 0; at + sizeof(bits) <= leaf.bytes.size() && !found; at += sizeof(bits)) {
      std::memcpy(&bits, leaf.bytes.data() + at, sizeof(bits));
      found = static_cast<Bits>(bits & exponent) == exponent;
    }
    return found;
  };
  for (size_t i = 0; i < leaves.size(); ++i) {
    if ((leaves[i].dtype == DType::kF32 && holds_ones(leaves[i], uint32_t{0x7f800000})) ||
        (leaves[i].dtype == DType::kBf16 && holds_ones(leaves[i], uint16_t{0x7f80}))) {
      return i;
    }
  }
  return std::nullopt;
}

std::string state_digest(const std::vector<HostArray>& leaves) {
  Digest digest(Digest::Zeros::kCounted);
  for (const HostArray& leaf : leaves) {
    digest.add(leaf);
  }
  return digest.finish();
}

std::string leaf_name(size_t leaf) { return fmt::format("state.{}", leaf); }

void write_checkpoint(const fs::path& file, const Checkpoint& checkpoint) {
  Metadata metadata = {{kVersionKey, kVersion},
                       {kStepKey, std::to_string(checkpoint.step)},
                       {kRunKey, run_json(checkpoint).dump()}};
  const NamedViews views = views_of(checkpoint);
  FileDigest digest(metadata);
  in_order_of_names(views, [&](const std::string& name, const HostView& view) {
    digest.add(name, view.dtype, view.shape, view.bytes);
  });
  metadata[kDigestKey] = digest.finish();
  write_tensors(file, views, metadata);
}

Checkpoint read_checkpoint(const fs::path& path) {
  const TensorFile file(path.string());
  need_version(file);
  check_digest(file);
  Checkpoint checkpoint;
  size_t leaves = 0;
  try {
    checkpoint.step = JsonInput(json_of(file, kStepKey)).as<int64_t>();
    leaves = take_run(JsonInput(json_of(file, kRunKey)), checkpoint);
  } catch (const driver::JsonInputError& error) {
    damaged(file.path(), error.what());
  }
  for (size_t i = 0; i < leaves; ++i) {
    checkpoint.leaves.push_back(tensor_of(file, leaf_name(i)));
  }
  const HostArray losses = tensor_of(file, kLosses);
  if (checkpoint.step < 0 || losses.dtype != DType::kF32 ||
      losses.shape != driver::Shape{checkpoint.step}) {
    damaged(file.path(), fmt::format("{} losses are wanted", checkpoint.step));
  }
  checkpoint.losses.resize(static_cast<size_t>(checkpoint.step));
  std::memcpy(checkpoint.losses.data(), losses.bytes.data(), losses.bytes.size());
  return checkpoint;
}

bool holds_own_checkpoint(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) {
    return false;
  }
  const auto read_at = [file](uint64_t at, std::span<std::byte> to) {
    const ssize_t count = ::pread(file, to.data(), to.size(), static_cast<off_t>(at));
    return std::cmp_equal(count, to.size());
  };
  struct stat info {};
  std::array<std::byte, sizeof(uint64_t)> first{};
  std::vector<std::byte> header;
  bool there = ::fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
               read_at(0, first);
  const auto length = there ? spec::safetensors_header_bytes(first) : std::nullopt;
  there = length && std::cmp_less(*length, info.st_size);
  if (there) {
    header.resize(*length);
    there = read_at(first.size(), header);
  }
  ::close(file);
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  return there && spec::safetensors_metadata(text).contains(kVersionKey);
}

std::vector<std::string> changed_parts(const RunParts& checkpoint, const RunParts& run) {
  std::vector<std::string> changes;
  if (!checkpoint.program.empty() && !run.program.empty() && checkpoint.program != run.program) {
    changes.emplace_back("the file of program.train holds another program (SHA-256 " + run.program +
                         ", of the checkpoint's " + checkpoint.program + ")");
  }
  if (checkpoint.data != run.data) {
    changes.emplace_back("the examples are others (SHA-256 " + run.data + ", of the checkpoint's " +
                         checkpoint.data + ")");
  }
  return changes;
}

std::vector<std::string> notes_on_parts(const RunParts& checkpoint, const RunParts& run) {
  std::vector<std::string> notes;
  if (checkpoint.cores != run.cores) {
    notes.push_back(
        fmt::format("the checkpoint was made with {} cores, the run continues with {}: "
                    "all-reduces are rounded differently from here on",
                    checkpoint.cores, run.cores));
  } else if (checkpoint.board != run.board) {
    notes.push_back(
        fmt::format("the checkpoint was made on board {}, the run continues with {}: the "
                    "bits are the same, the cycles are not",
                    checkpoint.board, run.board));
  }
  return notes;
}

}  // namespace tpu::training
