// The one mesh of a program. Meshes and tile lists of an artifact all number the same devices; cut
// into axes of prime size ("atoms"), one mesh says them all: an axis, a part of an axis, and a
// dimension of a tile list are lists of atoms, major first.
//
//   <"data"=4, "model"=2>   =>   axes "data:(1)2", "data:(2)2", "model"
//
// A mesh whose axes no atoms number is one of them with its devices in another order.
//
// The name of an atom is that of its axis and, where the axis has several, Shardy's for a part of
// it: name:(product of the sizes in front)size.
#pragma once

#include <optional>
#include <vector>

#include "ir/sharding.hpp"

namespace tpu::compiler::frontend {

// Numbers devices: 0 .. size-1 for each one.
struct Numbering {
  std::vector<int64_t> of_device;
  int64_t size = 1;
};

// Of the devices along each axis of `mesh`.
std::vector<Numbering> numberings(const Mesh& mesh);

// The same of devices in another order (MeshAtoms::order_of).
Numbering reordered(const Numbering& numbering, const std::vector<int64_t>& order);

// The part of an axis behind `before` (product of sizes), with `size` places.
Numbering part_of(const Numbering& axis, int64_t before, int64_t size);

// `mesh` with each axis cut into several of prime size: none of them is a part of another.
Mesh prime_mesh(const Mesh& mesh);

class MeshAtoms {
 public:
  // No axes as long as nothing is cut.
  const Mesh& mesh() const { return mesh_; }
  bool known() const { return !mesh_.axes.empty(); }

  // The axes of `source`, cut; the first mesh of the program decides.
  void adopt(const Mesh& source);

  // The devices of `source` in the order in which its axes are atoms: what it has at device d
  // stands at device order[d] here. Empty: as they are.
  std::vector<int64_t> order_of(const Mesh& source) const;

  // Atoms that number the devices so, major first; nothing if none do.
  std::optional<std::vector<int>> find(const Numbering& numbering) const;

 private:
  Mesh mesh_;
  std::vector<std::vector<int64_t>> coordinates_;  // by atom and device
};

}  // namespace tpu::compiler::frontend
