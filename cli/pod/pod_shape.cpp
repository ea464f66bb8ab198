#include "cli/pod/pod_shape.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <sstream>

#include "board/board_loader.hpp"
#include "cli/usage_error.hpp"

namespace tpu::driver {
namespace {

constexpr char kAddress[] = "127.0.0.1";
constexpr int kFirstPort = 8476;  // as PyTorch/XLA numbers them; nobody listens there
constexpr int64_t kHostSide = 2;  // of a host's chips

ChipGrid torus_of(const spec::BoardParams& board) {
  return {spec::chips_x(board), spec::chips_y(board)};
}

bool divides(const ChipGrid& part, const ChipGrid& whole) {
  return whole.x % part.x == 0 && whole.y % part.y == 0;
}

// The squarest rectangle of so many chips that divides the torus.
std::optional<ChipGrid> rectangle_of(int64_t chips, const ChipGrid& torus) {
  for (int64_t y = chips; y >= 1; --y) {
    const ChipGrid part{chips / y, y};
    if (part.size() == chips && part.x >= part.y && divides(part, torus)) {
      return part;
    }
  }
  return std::nullopt;
}

std::string grid_text(const ChipGrid& grid) { return fmt::format("{},{},1", grid.x, grid.y); }

// Their numbers on the process's host.
std::string visible_chips(const ChipGrid& torus, const ChipGrid& chips, int64_t process) {
  const bool has_hosts = torus.x % kHostSide == 0 && torus.y % kHostSide == 0;
  const ChipGrid host = has_hosts ? ChipGrid{kHostSide, kHostSide} : torus;
  const int64_t across = torus.x / chips.x;
  std::vector<int64_t> numbers;
  for (int64_t y = 0; y < std::min(chips.y, host.y); ++y) {
    for (int64_t x = 0; x < std::min(chips.x, host.x); ++x) {
      numbers.push_back((process % across * chips.x + x) % host.x +
                        host.x * ((process / across * chips.y + y) % host.y));
    }
  }
  return fmt::format("{}", fmt::join(numbers, ","));
}

}  // namespace

ChipGrid chip_grid(const std::string& text) {
  std::vector<int64_t> sides;
  std::istringstream from(text);
  for (std::string part; std::getline(from, part, ',');) {
    int64_t side = 0;
    const auto end = std::from_chars(part.data(), part.data() + part.size(), side);
    if (end.ec != std::errc() || end.ptr != part.data() + part.size()) {
      side = 0;
    }
    sides.push_back(side);
  }
  constexpr int64_t kMost = 1024;
  if (sides.size() == 3 && sides.back() == 1) {
    sides.pop_back();
  }
  if (sides.size() != 2 || std::min(sides[0], sides[1]) < 1 ||
      std::max(sides[0], sides[1]) > kMost) {
    throw UsageError(
        fmt::format("--chips-per-process: invalid value '{}': expected X,Y, as 2,1", text));
  }
  return {sides[0], sides[1]};
}

PodShape pod_shape(const spec::BoardParams& board, int64_t processes,
                   const std::optional<ChipGrid>& chips) {
  const ChipGrid torus = torus_of(board);
  if (chips) {
    if (!divides(*chips, torus)) {
      throw UsageError(
          fmt::format("--chips-per-process: {},{} chips do not divide those of the board {}: {},{}",
                      chips->x, chips->y, board.board.name, torus.x, torus.y));
    }
    const int64_t parts = torus.size() / chips->size();
    if (processes != 0 && processes != parts) {
      throw UsageError(fmt::format(
          "--processes {}: the board {} has {} parts of {},{} chips (--chips-per-process)",
          processes, board.board.name, parts, chips->x, chips->y));
    }
    return {parts, chips};
  }
  const int64_t cores = spec::core_count(board);
  if (processes < 1 || cores % processes != 0) {
    throw UsageError(
        fmt::format("--processes {}: processes share the {} cores of the board {} "
                    "equally",
                    processes, cores, board.board.name));
  }
  return {processes, torus.size() % processes == 0 ? rectangle_of(torus.size() / processes, torus)
                                                   : std::nullopt};
}

std::map<std::string, std::string> variables_of(const spec::BoardParams& board,
                                                const PodShape& shape, const PodRun& run,
                                                int64_t process) {
  std::vector<std::string> addresses;
  for (int64_t i = 0; i < shape.processes; ++i) {
    addresses.push_back(fmt::format("{}:{}", kAddress, kFirstPort + i));
  }
  const std::string number = std::to_string(process);
  std::map<std::string, std::string> variables = {
      {"TPUBOARD_PROCESS_ID", number},
      {"TPUBOARD_PROCESS_COUNT", std::to_string(shape.processes)},
      {"TPUBOARD_PROCESS_DIR", run.folder},
      {"CLOUD_TPU_TASK_ID", number},
      {"TPU_WORKER_ID", number},
      {"TPU_WORKER_HOSTNAMES", kAddress},
      {"TPU_PROCESS_ADDRESSES", fmt::format("{}", fmt::join(addresses, ","))},
      {"TPU_PROCESS_PORT", std::to_string(kFirstPort + process)},
      {"TPU_PROCESS_BOUNDS", ""},
      {"TPU_CHIPS_PER_PROCESS_BOUNDS", ""},
      {"TPU_VISIBLE_CHIPS", ""},
      // jax.distributed.initialize() without arguments looks for a TPU host only where it is told
      // that there is one, and for several slices.
      {"JAX_FORCE_TPU_INIT", "1"},
      {"JAX_COORDINATOR_PORT", std::to_string(run.port)},
      {"JAX_COORDINATOR_BIND_ADDRESS", fmt::format("{}:{}", kAddress, run.port)},
      {"MEGASCALE_COORDINATOR_ADDRESS", kAddress},
      {"MEGASCALE_NUM_SLICES", "1"},
      {"MEGASCALE_SLICE_ID", "0"}};
  if (!run.board.empty()) {
    variables["TPUBOARD_BOARD"] = run.board;
  }
  if (shape.chips) {
    const ChipGrid torus = torus_of(board);
    variables["TPU_PROCESS_BOUNDS"] =
        grid_text({torus.x / shape.chips->x, torus.y / shape.chips->y});
    variables["TPU_CHIPS_PER_PROCESS_BOUNDS"] = grid_text(*shape.chips);
    variables["TPU_VISIBLE_CHIPS"] = visible_chips(torus, *shape.chips, process);
  }
  return variables;
}

}  // namespace tpu::driver
