// Packages of an interpreter, which it lists itself.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/doctor/finding.hpp"
#include "cli/own_files.hpp"
#include "cli/python_program.hpp"
#include "tpu/error.hpp"
#include "tpu/version.hpp"

namespace tpu::driver {
namespace {

// One line of JSON. Names as pip compares them.
constexpr char kList[] = R"(
import json, re, sys
from importlib import metadata
from importlib.util import find_spec
wanted = {"tpuboard", "jax-tpuboard", "jax", "jaxlib", "torch", "torch-xla", "tensorflow", "tensorflow-cpu",
          "tensorflow-tpu", "libtpu", "libtpu-nightly", "numpy"}
packages, plugins = {}, []
for package in metadata.distributions():
    name = re.sub("[-_.]+", "-", package.metadata["Name"] or "").lower()
    if name in wanted:
        packages.setdefault(name, package.version)
    for point in package.entry_points:
        if point.group == "jax_plugins":
            plugins.append(name)
spec = find_spec("tpuboard")
print(json.dumps({"executable": sys.executable, "version": list(sys.version_info[:3]), "packages": packages,
                  "plugins": sorted(set(plugins)), "module": spec.origin if spec else None}))
)";

// A hundred times what a list takes from a local disk.
constexpr std::chrono::seconds kLimit{10};

using Version = std::array<int, 3>;

// "0.10.2.dev1" is 0, 10, 2.
Version version_of(const std::string& text) {
  Version version{};
  size_t at = 0;
  for (int& part : version) {
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
      part = part * 10 + (text[at++] - '0');
    }
    if (at < text.size() && text[at] == '.') {
      ++at;
    }
  }
  return version;
}

// A look at what one interpreter listed.
class PythonList {
 public:
  PythonList(const nlohmann::json& list, Findings& found) : found_(found) {
    for (const auto& [name, version] : list["packages"].items()) {
      packages_[name] = version.get<std::string>();
    }
    const auto numbers = list["version"].get<std::vector<int>>();
    python_ = fmt::format("{}.{}.{}", numbers.at(0), numbers.at(1), numbers.at(2));
    executable_ = list["executable"].get<std::string>();
    module_ = list["module"].is_string() ? list["module"].get<std::string>() : std::string();
    plugins_ = list["plugins"].get<std::vector<std::string>>();
  }

  void look() {
    look_at_interpreter();
    look_at_package();
    look_at_jax();
    look_at_torch();
    look_at_other_libraries();
  }

 private:
  bool has(const std::string& name) const { return packages_.contains(name); }
  std::string named(const std::string& name) const { return name + " " + packages_.at(name); }
  void add(Level level, const std::string& topic, const std::string& text,
           const std::string& advice = {}) {
    found_.push_back({level, topic, text, advice});
  }

  void look_at_interpreter() {
    const std::string text = fmt::format("{} ({})", python_, executable_);
    if (version_of(python_) < Version{3, 10, 0}) {
      add(Level::kWarning, "Python", text, "the package tpuboard needs Python 3.10 or later");
    } else {
      add(Level::kOk, "Python", text);
    }
  }

  void look_at_package() {
    if (has("tpuboard") && has("jax-tpuboard")) {
      add(Level::kProblem, "package",
          fmt::format("{} and {}, which is its former name, have the same files", named("tpuboard"),
                      named("jax-tpuboard")),
          fmt::format("{} -m pip uninstall jax-tpuboard tpuboard, then install tpuboard again",
                      executable_));
    } else if (has("tpuboard") || has("jax-tpuboard")) {
      const std::string name = has("tpuboard") ? "tpuboard" : "jax-tpuboard";
      const bool is_same = packages_.at(name) == kVersion;
      add(is_same ? Level::kOk : Level::kWarning, "package",
          fmt::format("{} ({})", named(name), module_.empty() ? "its files are missing" : module_),
          is_same ? ""
                  : fmt::format("this program is of version {}; install one version of both",
                                kVersion));
    } else {
      add(Level::kNote, "package",
          module_.empty() ? "tpuboard is not installed in this Python"
                          : "tpuboard has files and was not installed by pip: " + module_,
          "JAX finds the board there by TPU_LIBRARY_PATH alone; pip install tpuboard-*.whl");
    }
  }

  void look_at_jax() {
    if (!has("jax")) {
      return add(Level::kNote, "JAX", "not installed in this Python",
                 fmt::format("{} -m pip install jax", executable_));
    }
    const std::string text =
        fmt::format("{}, {}", named("jax"), has("jaxlib") ? named("jaxlib") : "no jaxlib");
    const Version version = version_of(packages_.at("jax"));
    if (!has("jaxlib")) {
      add(Level::kWarning, "JAX", text, "pip install jax installs both");
    } else if (version < Version{0, 6, 2}) {
      add(Level::kWarning, "JAX", text, "the oldest version that can use the board is 0.6.2");
    } else if (version < Version{0, 9, 1}) {
      add(Level::kNote, "JAX", text,
          "before 0.9.1, results of programs on several cores need out_shardings");
    } else {
      add(Level::kOk, "JAX", text);
    }
    for (const std::string& plugin : plugins_) {
      if (plugin != "tpuboard" && plugin != "jax-tpuboard") {
        add(Level::kNote, "JAX", "another plugin: " + plugin,
            "JAX prefers one of them; JAX_PLATFORMS=tpu selects the board");
      }
    }
  }

  // A pair fits where the first two numbers are the same.
  void look_at_torch() {
    if (!has("torch")) {
      return;
    }
    if (!has("torch-xla")) {
      return add(Level::kNote, "PyTorch", named("torch") + ", no torch_xla", fitting_torch());
    }
    const Version torch = version_of(packages_.at("torch"));
    const Version xla = version_of(packages_.at("torch-xla"));
    const bool fits = torch[0] == xla[0] && torch[1] == xla[1];
    add(fits ? Level::kOk : Level::kWarning, "PyTorch",
        fmt::format("{}, {}", named("torch"), named("torch-xla")),
        fits ? "" : "each torch_xla is built for one torch; " + fitting_torch());
  }

  // Names of packages of PyTorch alone: an index may have another "tpuboard". The pair of the extra
  // `torch`.
  std::string fitting_torch() const {
    return fmt::format("{} -m pip install torch==2.9.1 torch_xla==2.9.0 installs a pair that fits",
                       executable_);
  }

  void look_at_other_libraries() {
    for (const char* const name : {"tensorflow", "tensorflow-cpu", "tensorflow-tpu"}) {
      if (has(name)) {
        add(Level::kOk, "TensorFlow", named(name));
      }
    }
    for (const char* const name : {"libtpu", "libtpu-nightly"}) {
      if (has(name)) {
        add(Level::kWarning, "other TPU library", named(name),
            fmt::format("frameworks may take it for the board's; {} -m pip uninstall {}, or an "
                        "environment without it",
                        executable_, name));
      }
    }
  }

  Findings& found_;
  std::map<std::string, std::string> packages_;
  std::string python_;
  std::string executable_;
  std::string module_;
  std::vector<std::string> plugins_;
};

}  // namespace

void look_at_python(const std::string& python, Findings& found) {
  const std::string program = chosen_python(python);
  try {
    const PythonOutput output = ask_python(program, kList, kLimit, "name another one by --python");
    if (!output.ended) {
      found.push_back(
          {Level::kWarning, "Python",
           fmt::format("{} did not list its packages within {} s", program, kLimit.count()),
           "name another one by --python"});
      return;
    }
    if (output.code != 0) {
      found.push_back(
          {Level::kWarning, "Python",
           fmt::format("{} cannot list its packages (exit code {})", program, output.code),
           "expected Python 3.10 or later; name another one by --python"});
      return;
    }
    PythonList(nlohmann::json::parse(output.text), found).look();
  } catch (const Error& error) {
    found.push_back({Level::kNote, "Python", error.message(),
                     "programs of the board need none; frameworks do"});
  } catch (const nlohmann::json::exception& error) {
    found.push_back({Level::kWarning, "Python",
                     fmt::format("{} printed no list of packages: {}", program, error.what()),
                     "name another one by --python"});
  }
}

}  // namespace tpu::driver
