// tpuboard tpu-worker: a TPU node for programs of TensorFlow. This process becomes the Python
// module tpuboard.tpu_worker, which needs tensorflow-tpu; here an interpreter with both is found.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "cli/become_program.hpp"
#include "cli/commands.hpp"
#include "cli/own_files.hpp"
#include "cli/python_program.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

namespace fs = std::filesystem;

constexpr int kPort = 8470;  // of Cloud TPU nodes
constexpr char kOther[] = "name another Python with --python";

struct WorkerArguments {
  int port = kPort;
  std::string python;
};

// That of sim_scripts/tensorflow_venv, where nothing names another one.
std::string worker_python(const WorkerArguments& arguments, const fs::path& sources) {
  const fs::path made = sources / "build/venv-tensorflow-2.20/bin/python";
  const bool is_made = !sources.empty() && fs::exists(made);
  const char* const active = std::getenv("VIRTUAL_ENV");
  const bool is_active = active != nullptr && *active != '\0';
  return arguments.python.empty() && !is_active && is_made ? made.string()
                                                           : chosen_python(arguments.python);
}

// A source tree has the module.
void set_variables(const fs::path& sources) {
  if (!sources.empty()) {
    const char* const before = std::getenv("PYTHONPATH");
    const bool is_set = before != nullptr && *before != '\0';
    const std::string path =
        (sources / "python").string() + (is_set ? ":" : "") + (is_set ? before : "");
    setenv("PYTHONPATH", path.c_str(), 1);
  }
  set_plugin_library();
}

// Exit codes of the look at an interpreter.
enum Found : int { kAll = 0, kOldPython = 3, kNoTensorFlow = 4, kNoPackage = 5 };
constexpr char kLook[] =
    "import sys\n"
    "from importlib.util import find_spec\n"
    "sys.exit(3 if sys.version_info < (3, 11) else 4 if not find_spec('tensorflow') else\n"
    "         5 if not find_spec('tpuboard') else 0)\n";

void check(const std::string& python) {
  std::string text;
  switch (run_python(python, kLook, kOther)) {
    case kAll:
      return;
    case kOldPython:
      text = fmt::format("expected Python 3.11 or later; {}", kOther);
      break;
    case kNoTensorFlow:
      text = fmt::format(
          "has no TensorFlow, expected the package tensorflow-tpu: sim_scripts/tensorflow_venv "
          "makes an environment with it (docs/tensorflow.md); {}",
          kOther);
      break;
    case kNoPackage:
      text = "has no package tpuboard: install it there with pip (docs/tensorflow.md)";
      break;
    default:
      text = fmt::format("is not a Python that works; {}", kOther);
  }
  throw Error(ErrorCode::kFailedPrecondition, fmt::format("{}: {}", python, text));
}

[[noreturn]] void run_tpu_worker(const WorkerArguments& arguments) {
  const fs::path sources = source_tree();
  const std::string python = worker_python(arguments, sources);
  set_variables(sources);
  check(python);
  // -P, of Python 3.11: no modules of the working folder.
  become_program(
      {python, "-P", "-m", "tpuboard.tpu_worker", "--port", std::to_string(arguments.port)},
      kOther);
}

}  // namespace

void add_tpu_worker_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("tpu-worker", "Serve programs of TensorFlow as a TPU node does");
  auto arguments = std::make_shared<WorkerArguments>();
  constexpr int kMostPort = 65535;
  command->add_option("--port", arguments->port, "Of the node (0: any port)")
      ->check(CLI::Range(0, kMostPort))
      ->capture_default_str()
      ->type_name("PORT");
  command
      ->add_option("--python", arguments->python,
                   "Python with tensorflow-tpu (default: that of $VIRTUAL_ENV, else of "
                   "sim_scripts/tensorflow_venv, else python3)")
      ->type_name("PROGRAM");
  command->callback([arguments] { run_tpu_worker(*arguments); });
}

}  // namespace tpu::driver
