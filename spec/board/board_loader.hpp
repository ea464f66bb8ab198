// Loads board numbers: a built-in preset or a file in the format of spec/board/v3_8.toml, then
// overrides. Everything is checked: unknown or missing keys, units, ranges and combinations that no
// board can have.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "tpu/spec/board_params.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::spec {

/// A board file or override that cannot be used; the text says where and what to do.
class BoardError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// `name_or_path` is a preset ("v3_8", "v2_32") or the path of a board file (recognised by a '/' or
/// ".toml"). A file may include another board and then has the keys that differ, with a board.name
/// of its own (docs/boards.md). `overrides` are "section.key=value". Throws BoardError.
BoardParams load_board(const std::string& name_or_path,
                       const std::vector<std::string>& overrides = {});

/// The value of a key as an override writes it.
std::string value_text(const BoardKey& key, const BoardParams& params);

/// Names of the built-in presets.
std::vector<std::string> board_preset_names();

/// 64-bit FNV-1a hash over the structural keys: what a compiled program depends on. Boards that
/// differ in speeds and latencies alone have the same hash and run each other's executables.
uint64_t board_hash(const BoardParams& params);

/// Most cores of a pod (spec/formats/rings.toml: MAX_CORES), and links of a way between two.
inline constexpr int64_t kMaxCores = 2048;
inline constexpr int64_t kMostLinks = 32;

/// Of the whole pod, which is one board unless the board file says otherwise (docs/pods.md).
inline int64_t board_count(const BoardParams& params) {
  return params.pod.boards_x * params.pod.boards_y;
}
inline int64_t chip_count(const BoardParams& params) {
  return board_count(params) * params.board.chips;
}
inline int64_t core_count(const BoardParams& params) {
  return chip_count(params) * params.board.cores_per_chip;
}
/// Chips in the x direction: chip = x + chips_x * y.
inline int64_t chips_x(const BoardParams& params) {
  return params.pod.boards_x * params.board.torus_x;
}
inline int64_t chips_y(const BoardParams& params) { return chip_count(params) / chips_x(params); }
/// The board that has this chip of the pod: board = x + boards_x * y.
inline int64_t board_of_chip(const BoardParams& params, int64_t chip) {
  const int64_t rows = params.board.chips / params.board.torus_x;
  return chip % chips_x(params) / params.board.torus_x +
         chip / chips_x(params) / rows * params.pod.boards_x;
}

/// Whether a core of the board has this queue of the ISA.
inline bool has_queue(const BoardParams& params, size_t queue) {
  return queue < kQueues.size() &&
         (kQueues[queue].engine != Engine::kMxu || kQueues[queue].unit < params.core.mxus);
}

/// Commands of a queue that may have started and not be done.
inline size_t commands_in_flight(const BoardParams& params, size_t queue) {
  const Engine engine = kQueues[queue].engine;
  const bool dma =
      engine == Engine::kDmaIn || engine == Engine::kDmaOut || engine == Engine::kDmaRemote;
  return static_cast<size_t>(dma ? params.dma.in_flight : params.core.in_flight);
}

/// Core cycles in which the host makes `bytes` ready for an upload, rounded up.
uint64_t host_input_cycles(const BoardParams& params, uint64_t bytes);

/// Core cycles of `ns` nanoseconds, rounded up.
inline uint64_t cycles_from_ns(const BoardParams& params, int64_t ns) {
  return static_cast<uint64_t>((ns * params.core.clock_mhz + 999) / 1000);
}

}  // namespace tpu::spec
