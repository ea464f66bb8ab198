// tpuboard convert: training data from arrays to TFRecord files, and back to NumPy.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "file/files.hpp"
#include "format/npz.hpp"
#include "input/records/example.hpp"
#include "input/records/record_file.hpp"
#include "input/records/record_source.hpp"
#include "input/rewrite.hpp"
#include "terminal/text_bar.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

struct ConvertArguments {
  std::vector<std::string> inputs;
  std::string records;  // prefix
  std::string numpy;    // folder
  std::vector<std::string> features;
  unsigned shards = 1;
  std::string compression = "none";
  unsigned threads = 2;
};

struct NamedColumns {
  std::vector<std::string> names;
  std::vector<input::Column> columns;
  std::vector<std::string> paths;

  void add(const std::string& name, const std::string& path, const std::string& member) {
    names.push_back(name);
    columns.push_back(input::open_column(path, member, {.name = name}));
    paths.push_back(path);
  }
};

// "NAME=FILE", "NAME=FILE.npz:ARRAY", or a whole FILE.npz.
void add_arrays(const std::string& input, NamedColumns& to) {
  const size_t equal = input.find('=');
  if (equal == std::string::npos) {
    if (!input.ends_with(".npz")) {
      throw UsageError(fmt::format(
          "'{}': expected NAME=FILE, or one FILE.npz, which gives all of its arrays", input));
    }
    for (const std::string& name : npz_names(input)) {
      to.add(name, input, name);
    }
    return;
  }
  const std::string name = input.substr(0, equal);
  const std::string path = input.substr(equal + 1);
  const size_t colon = path.rfind(':');
  const bool member =
      colon != std::string::npos &&
      (path.substr(0, colon).ends_with(".npz") || path.substr(0, colon).ends_with(".safetensors"));
  const std::string file = member ? path.substr(0, colon) : path;
  if (!file.ends_with(".npy") && !file.ends_with(".npz") && !file.ends_with(".safetensors")) {
    throw UsageError(fmt::format("'{}': expected a .npy, .npz or .safetensors file", input));
  }
  to.add(name, file, member ? path.substr(colon + 1) : "");
}

void to_records(const ConvertArguments& arguments) {
  NamedColumns arrays;
  for (const std::string& input : arguments.inputs) {
    add_arrays(input, arrays);
  }
  const input::RecordFiles files{arguments.records, arguments.shards,
                                 arguments.compression == "gzip"   ? input::Compression::kGzip
                                 : arguments.compression == "zlib" ? input::Compression::kZlib
                                                                   : input::Compression::kNone,
                                 arguments.threads};
  if (files.shards == 0 || files.shards > 99999) {
    throw UsageError(fmt::format("--shards {}: expected 1 to 99999 files", files.shards));
  }
  for (const std::string& path : files.paths()) {
    refuse_overwrite(path, arrays.paths);
  }
  spec::TextBar bar("convert");
  input::write_records(arrays.names, arrays.columns, files,
                       [&bar](uint64_t done, uint64_t all) { bar.count(done, all, "examples"); });
}

std::vector<input::Feature> features_in(const std::vector<std::string>& files,
                                        const ConvertArguments& arguments) {
  std::vector<input::Feature> features;
  for (const std::string& text : arguments.features) {
    features.push_back(input::parse_feature(text));
    features.back().stored_type = features.back().type;
  }
  for (size_t i = 0; features.empty() && i < files.size(); ++i) {
    const input::RecordFile file(files[i]);
    if (file.records() == 0) {
      continue;
    }
    const input::OpenFile opened(files[i]);
    input::RecordBuffer buffer;
    try {
      features = input::features_of(file.read(0, &opened, buffer));
    } catch (const input::BadExample& error) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", file.place(0), error.what()));
    }
  }
  return features;
}

void to_numpy(const ConvertArguments& arguments) {
  const std::vector<std::string> files = input::find_files(arguments.inputs);
  const std::vector<input::Feature> features = features_in(files, arguments);
  for (const std::string& path : input::array_paths(arguments.numpy, features)) {
    refuse_overwrite(path, files);
  }
  spec::TextBar bar("convert");
  input::write_arrays(input::record_source(files, features, {.threads = arguments.threads}),
                      features, arguments.numpy, arguments.threads,
                      [&bar](uint64_t done, uint64_t all) { bar.count(done, all, "examples"); });
}

}  // namespace

void add_convert_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("convert", "Training data from NumPy to TFRecord files, and back");
  auto arguments = std::make_shared<ConvertArguments>();
  command
      ->add_option("input", arguments->inputs,
                   "Arrays: NAME=FILE (.npy, .npz:ARRAY, .safetensors:TENSOR) or FILE.npz; or "
                   "TFRecord files: names or patterns")
      ->required()
      ->type_name("INPUT");
  command
      ->add_option("--records", arguments->records,
                   "Write TFRecord files PREFIX-00000-of-00001.tfrecord ...")
      ->type_name("PREFIX");
  command->add_option("--shards", arguments->shards, "Number of TFRecord files")
      ->capture_default_str();
  command->add_option("--compression", arguments->compression, "Of the TFRecord files")
      ->check(CLI::IsMember({"none", "gzip", "zlib"}))
      ->capture_default_str();
  command->add_option("--numpy", arguments->numpy, "Write FOLDER/FEATURE.npy of TFRecord files")
      ->type_name("FOLDER");
  command
      ->add_option("--feature", arguments->features,
                   "Type and shape of a feature to write, such as image:u8[28,28,1]; default: what "
                   "the first record holds, flat")
      ->type_name("NAME:TYPE[DIMS]");
  command->add_option("--threads", arguments->threads, "Threads that read or write")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  command->callback([arguments] {
    if (arguments->records.empty() == arguments->numpy.empty()) {
      throw UsageError("expected one of --records PREFIX and --numpy FOLDER");
    }
    if (arguments->numpy.empty()) {
      to_records(*arguments);
    } else {
      to_numpy(*arguments);
    }
  });
}

}  // namespace tpu::driver
