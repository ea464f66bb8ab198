#include "transport/worker/worker_program.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "tpu/error.hpp"

namespace tpu::driver::worker {
namespace {

namespace fs = std::filesystem;

bool can_run(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

// With this code: a library, or the program itself.
fs::path file_of_this_code() {
  std::error_code error;
  fs::path program = fs::read_symlink("/proc/self/exe", error);
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&worker_program), &here) == 0) {
    return program;
  }
  // Of the program it has what the program was called by, which may be in PATH.
  const fs::path named = fs::canonical(here.dli_fname, error);
  return error ? program : named;
}

}  // namespace

std::vector<std::string> worker_program() {
  const fs::path here = file_of_this_code();
  const fs::path folder = here.parent_path();
  if (const fs::path server = folder / "tpuboard_server";
      here.filename() == "libtpuboard_pjrt.so" && can_run(server)) {
    return {server.string(), here.string(), kMakerCommand};
  }
  std::vector<fs::path> places = {folder / "tpuboard", folder.parent_path() / "bin" / "tpuboard"};
  if (const char* const path = std::getenv("PATH"); path != nullptr) {
    std::istringstream folders(path);
    for (std::string each; std::getline(folders, each, ':');) {
      places.push_back(fs::path(each) / "tpuboard");
    }
  }
  std::vector<std::string> looked;
  for (const fs::path& place : places) {
    if (can_run(place)) {
      return {place.string(), kMakerCommand};
    }
    looked.push_back(place.string());
  }
  throw Error(
      ErrorCode::kFailedPrecondition,
      fmt::format("OpenOptions::board_processes: the program tpuboard, whose processes have "
                  "the boards, is not there; looked for {}; put its folder into PATH",
                  fmt::join(looked, ", ")));
}

}  // namespace tpu::driver::worker
