// A folder a profile.
#include "cli/xprof_folder.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <span>

#include "file/files.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {

XprofFolder::XprofFolder(const std::string& folder, const OpenOptions& options) {
  if (!options.sim.xprof) {
    return;
  }
  const auto runs = std::filesystem::path(folder) / "plugins" / "profile";
  make_folder(runs);
  const std::string time = fmt::format("{:%Y_%m_%d_%H_%M_%S}", fmt::localtime(std::time(nullptr)));
  std::error_code error;
  for (int number = 1; run_.empty() && !error; ++number) {
    const auto run = runs / (number == 1 ? time : fmt::format("{}_{}", time, number));
    if (std::filesystem::create_directory(run, error)) {
      run_ = run;
    }
  }
  if (error) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("cannot make a folder for the profile in {}: {}", runs.string(),
                            error.message()));
  }
}

void XprofFolder::write(const Board& board) const {
  if (run_.empty()) {
    return;
  }
  const std::string bytes = board.take_xspace();
  if (bytes.empty()) {
    const SimOptions sim = board.sim();
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("--xprof: nothing was recorded: of the steps {} to {} none ran; steps "
                            "count from 0, those before a snapshot included",
                            sim.xprof_first_step, sim.xprof_first_step + (sim.xprof_steps - 1)));
  }
  write_file((run_ / "tpuboard.xplane.pb").string(), std::as_bytes(std::span(bytes)));
}

}  // namespace tpu::driver
