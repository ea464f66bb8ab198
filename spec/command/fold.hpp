// One board in place of all boards of a pod: every board is thought to do the same at the same
// time. What a core sends to another board arrives at this board instead, from the board whose
// place is the mirror image, and what passes other boards passes this one (docs/pods.md).
//
// Numbers of cores here are by board: those of this board come first, as on a board alone, and
// number / board_cores() is the board that has the core. Programs count over the torus of the pod.
#pragma once

#include <cstdint>
#include <vector>

#include "tpu/spec/board_params.hpp"

namespace tpu::spec {

class Fold {
 public:
  /// `pod`: numbers of the whole pod.
  explicit Fold(const BoardParams& pod);

  const BoardParams& pod() const { return pod_; }
  uint32_t cores() const { return static_cast<uint32_t>(in_pod_.size()); }  ///< of the pod
  uint32_t board_cores() const { return board_cores_; }
  /// Number in the pod's order, of a core by board.
  uint32_t in_pod(uint32_t core) const { return in_pod_[core]; }
  /// Number by board, of a core in the pod's order; a core that the pod has not keeps its number.
  uint32_t by_board(uint64_t core) const;
  /// The core of this board at the same place as a core by board.
  uint32_t twin(uint32_t core) const { return core % board_cores_; }
  /// The chip of this board, by the pod's order, at the same place as a chip.
  uint32_t twin_chip(uint32_t chip) const;

 private:
  const BoardParams pod_;
  const uint32_t board_cores_;
  std::vector<uint32_t> in_pod_;    // by number by board
  std::vector<uint32_t> by_board_;  // by number in the pod
};

}  // namespace tpu::spec
