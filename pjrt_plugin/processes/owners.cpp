#include "processes/owners.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "board/board_loader.hpp"
#include "errors.hpp"
#include "processes/real_machine.hpp"

namespace tpu::pjrt {
namespace {

constexpr int64_t kHostSide = 2;

struct Grid {
  int64_t x = 1;
  int64_t y = 1;
};

Grid torus_of(const spec::BoardParams& board) {
  return {spec::chips_x(board), spec::chips_y(board)};
}

// "2,1,1" or "2,1"; the third dimension is 1 on this machine.
Grid grid_of(const char* name, const std::string& text) {
  const std::vector<int> sides = numbers_of(name, text);
  if (sides.empty() || sides.size() > 3 || (sides.size() == 3 && sides[2] != 1)) {
    throw_invalid(fmt::format(
        "environment variable {}: expected X,Y,1, as boards have chips in two dimensions; found "
        "'{}'",
        name, text));
  }
  return {sides[0], sides.size() > 1 ? sides[1] : 1};
}

bool has_hosts(const Grid& torus) { return torus.x % kHostSide == 0 && torus.y % kHostSide == 0; }

// The place of a chip in the order of hosts.
int64_t place_of(int64_t chip, const spec::BoardParams& board) {
  const Grid torus = torus_of(board);
  if (!has_hosts(torus)) {
    return chip;
  }
  const int64_t x = chip % torus.x;
  const int64_t y = chip / torus.x;
  const int64_t host = x / kHostSide + torus.x / kHostSide * (y / kHostSide);
  return host * kHostSide * kHostSide + chip_on_host(chip, board);
}

DeviceOwners in_order(const spec::BoardParams& board, int processes) {
  const int64_t per_chip = board.board.cores_per_chip;
  const int64_t each = spec::core_count(board) / processes;
  DeviceOwners owners;
  for (int64_t core = 0; core < spec::core_count(board); ++core) {
    const int64_t place = place_of(core / per_chip, board) * per_chip + core % per_chip;
    owners.push_back(static_cast<int>(place / each));
  }
  return owners;
}

DeviceOwners in_rectangles(const spec::BoardParams& board, const Grid& processes,
                           const Grid& chips) {
  DeviceOwners owners;
  for (int64_t core = 0; core < spec::core_count(board); ++core) {
    const int64_t chip = core / board.board.cores_per_chip;
    const int64_t x = chip % spec::chips_x(board) / chips.x;
    const int64_t y = chip / spec::chips_x(board) / chips.y;
    owners.push_back(static_cast<int>(x + processes.x * y));
  }
  return owners;
}

}  // namespace

int64_t chip_on_host(int64_t chip, const spec::BoardParams& board) {
  const Grid torus = torus_of(board);
  return has_hosts(torus) ? chip % torus.x % kHostSide + kHostSide * (chip / torus.x % kHostSide)
                          : chip;
}

DeviceOwners read_owners(const Variable& variable, const spec::BoardParams& board, int processes) {
  const int64_t devices = spec::core_count(board);
  if (processes < 1 || devices % processes != 0) {
    throw_invalid(
        fmt::format("{} processes: the board has {} cores, which processes must share "
                    "equally",
                    processes, devices));
  }
  const auto bounds = value_of(variable, kProcessBounds);
  if (!bounds || product_of(kProcessBounds, *bounds) != processes) {
    return in_order(board, processes);
  }
  const Grid torus = torus_of(board);
  const Grid grid = grid_of(kProcessBounds, *bounds);
  const auto text = value_of(variable, kChipBounds);
  const Grid chips =
      text ? grid_of(kChipBounds, *text)
           : Grid{std::max<int64_t>(torus.x / grid.x, 1), std::max<int64_t>(torus.y / grid.y, 1)};
  if (grid.x * chips.x != torus.x || grid.y * chips.y != torus.y) {
    throw_invalid(fmt::format("{} is {} and {} is {}: {}x{} chips; the board has {}x{}",
                              kProcessBounds, *bounds, kChipBounds, text.value_or("not set"),
                              grid.x * chips.x, grid.y * chips.y, torus.x, torus.y));
  }
  return in_rectangles(board, grid, chips);
}

DeviceOwners owners_of_environment(const spec::BoardParams& board, int processes) {
  return read_owners(variable_of_environment(), board, processes);
}

std::vector<int> devices_of_process(const DeviceOwners& owners, int process) {
  std::vector<int> devices;
  for (size_t device = 0; device < owners.size(); ++device) {
    if (owners[device] == process) {
      devices.push_back(static_cast<int>(device));
    }
  }
  return devices;
}

}  // namespace tpu::pjrt
