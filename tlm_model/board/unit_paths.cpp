// Paths by core.
#include "board/unit_paths.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <string_view>

#include "board/board_loader.hpp"
#include "tpu/spec/isa.hpp"
#include "waves/board_signals.hpp"

namespace tpu::model {
namespace {

// Of each core: `board.chipC.coreK.` and each of these names.
std::vector<std::string> core_units(const spec::BoardParams& params,
                                    const std::vector<std::string>& names) {
  std::vector<std::string> paths;
  const WaveBoard board{.cores_per_chip = static_cast<uint32_t>(params.board.cores_per_chip)};
  const auto cores = static_cast<size_t>(spec::core_count(params));
  for (size_t core = 0; core < cores; ++core) {
    for (const std::string& name : names) {
      paths.push_back(core_path(board, core) + "." + name);
    }
  }
  return paths;
}

}  // namespace

std::vector<std::string> mxu_paths(const spec::BoardParams& params) {
  std::vector<std::string> names;
  for (int64_t unit = 0; unit < params.core.mxus; ++unit) {
    names.push_back("mxu" + std::to_string(unit));
  }
  return core_units(params, names);
}

std::vector<std::string> block_paths(const spec::BoardParams& params) {
  std::vector<std::string> names = {"sem"};
  for (const spec::Queue queue :
       {spec::Queue::kDmaIn, spec::Queue::kDmaOut, spec::Queue::kDmaRemote}) {
    names.emplace_back(spec::kQueueNames[static_cast<size_t>(queue)]);
  }
  return core_units(params, names);
}

bool names_unit(const std::string& pattern, const std::string& path) {
  return fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
}

bool names_any(const std::string& pattern, const std::vector<std::string>& paths) {
  return std::ranges::any_of(paths,
                             [&](const std::string& path) { return names_unit(pattern, path); });
}

std::string unmatched_hint(const std::string& pattern, const std::vector<std::string>& paths,
                           const spec::BoardParams& params) {
  if (names_any("*." + pattern, paths)) {
    return "; write '*." + pattern + "'";
  }
  const auto means = [&](const std::vector<std::string>& units) {
    return names_any(pattern, units) || names_any("*." + pattern, units);
  };
  if (means(mxu_paths(params))) {
    return "; matrix units are chosen by SimOptions::mxu";
  }
  if (means(block_paths(params))) {
    return "; semaphores and DMA queues are chosen by SimOptions::verilog";
  }
  for (const std::string name : {"vpu", "xlu", "seq", "hart"}) {
    if (means(core_units(params, {name}))) {
      return "; " + name +
             " has no Verilog: matrix units (SimOptions::mxu), semaphores and DMA queues "
             "(SimOptions::verilog) have";
    }
  }
  return "";
}

}  // namespace tpu::model
