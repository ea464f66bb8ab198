// Numbers of the cores of a folded pod.
#include "command/fold.hpp"

#include <algorithm>

#include "board/board_loader.hpp"

namespace tpu::spec {

Fold::Fold(const BoardParams& pod)
    : pod_(pod),
      board_cores_(static_cast<uint32_t>(pod.board.chips * pod.board.cores_per_chip)),
      in_pod_(static_cast<size_t>(core_count(pod))),
      by_board_(in_pod_.size()) {
  const auto cores_per_chip = static_cast<uint32_t>(pod.board.cores_per_chip);
  const auto width = static_cast<uint32_t>(chips_x(pod));
  const auto columns = static_cast<uint32_t>(pod.board.torus_x);
  const auto rows = static_cast<uint32_t>(pod.board.chips) / columns;
  for (uint32_t core = 0; core < in_pod_.size(); ++core) {
    const uint32_t chip = core / cores_per_chip;
    const uint32_t place = chip % width % columns + columns * (chip / width % rows);
    const auto board = static_cast<uint32_t>(board_of_chip(pod, chip));
    by_board_[core] = board * board_cores_ + place * cores_per_chip + core % cores_per_chip;
    in_pod_[by_board_[core]] = core;
  }
}

uint32_t Fold::by_board(uint64_t core) const {
  return core < by_board_.size() ? by_board_[core]
                                 : static_cast<uint32_t>(std::min<uint64_t>(core, UINT32_MAX));
}

uint32_t Fold::twin_chip(uint32_t chip) const {
  const auto width = static_cast<uint32_t>(chips_x(pod_));
  const auto columns = static_cast<uint32_t>(pod_.board.torus_x);
  const auto rows = static_cast<uint32_t>(pod_.board.chips) / columns;
  return chip % width % columns + width * (chip / width % rows);
}

}  // namespace tpu::spec
