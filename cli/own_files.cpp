// A build has bin/tpuboard and lib/libtpuboard_pjrt.so below build/PRESET of its sources. An
// installation has bin, lib and share below its prefix; the Debian package has the library in
// lib/tpuboard. The prefix of a wheel is the package's folder, LIBRARY/site-packages/tpuboard,
// which has the library itself.
#include "cli/own_files.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <regex>
#include <string>
#include <system_error>

#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

namespace fs = std::filesystem;

constexpr char kLibrary[] = "libtpuboard_pjrt.so";
constexpr char kVariable[] = "TPU_LIBRARY_PATH";

// Such as python3.12.
bool is_python_name(const std::string& name) {
  static const std::regex pattern("python\\d+\\.\\d+");
  return std::regex_match(name, pattern);
}

fs::path prefix() { return folder_of_this_program().parent_path(); }

}  // namespace

fs::path folder_of_this_program() { return fs::read_symlink("/proc/self/exe").parent_path(); }

fs::path source_tree() {
  const fs::path root = prefix().parent_path().parent_path();
  return fs::exists(root / "python/tpuboard/tpu_worker.py") ? root : fs::path();
}

fs::path shared_files() {
  const fs::path installed = prefix() / "share" / "tpuboard";
  return fs::exists(installed) ? installed : source_tree();
}

fs::path example_file(const fs::path& name) {
  const fs::path shared = shared_files();
  const fs::path file = shared / "examples" / name;
  if (shared.empty() || !fs::exists(file)) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{}: no such file; this program belongs to an installation or a build, "
                            "expected it in PREFIX/bin or in build/PRESET/bin of the source tree",
                            (prefix() / "share/tpuboard/examples" / name).string()));
  }
  return file;
}

std::vector<fs::path> digit_folders() {
  std::vector<fs::path> folders = {prefix() / "share" / "tpuboard" / "digits"};
  if (const fs::path sources = source_tree(); !sources.empty()) {
    folders.push_back(sources / "out" / "data" / "mnist");
  }
  return folders;
}

std::string python_of_wheel() {
  const fs::path package = prefix();
  std::error_code none;  // another user's Python may be out of reach
  if (!fs::exists(package / "_library.py", none)) {
    return {};
  }
  const fs::path library = package.parent_path().parent_path();  // lib/pythonX.Y
  if (!is_python_name(library.filename().string())) {
    return "python3";  // `pip install --target` takes any folder
  }
  const fs::path python = library.parent_path().parent_path() / "bin" / library.filename();
  // An installation for one user, or of a distribution, has its Python elsewhere.
  return fs::exists(python, none) ? python.string() : library.filename().string();
}

std::string chosen_python(const std::string& given) {
  if (!given.empty()) {
    return given;
  }
  if (std::string own = python_of_wheel(); !own.empty()) {
    return own;
  }
  const char* const active = std::getenv("VIRTUAL_ENV");
  return active != nullptr && *active != '\0' ? std::string(active) + "/bin/python" : "python3";
}

std::string shown(const fs::path& path) {
  const fs::path relative = path.lexically_relative(fs::current_path());
  return relative.empty() || relative.string().starts_with("..") ? path.string()
                                                                 : relative.string();
}

std::string own_command() {
  // A wheel's is below site-packages, behind a script on the PATH.
  return python_of_wheel().empty() ? shown(fs::read_symlink("/proc/self/exe")) : "tpuboard";
}

fs::path plugin_library() {
  const fs::path own = prefix();
  for (const fs::path& folder : {own / "lib", own, own / "lib" / "tpuboard"}) {
    if (fs::exists(folder / kLibrary)) {
      return folder / kLibrary;
    }
  }
  return {};
}

void set_plugin_library() {
  const char* const named = std::getenv(kVariable);
  const fs::path library = plugin_library();
  if ((named == nullptr || fs::path(named).filename() != kLibrary) && !library.empty()) {
    ::setenv(kVariable, library.c_str(), 1);
  }
}

}  // namespace tpu::driver
