// Meshes of cores, and how arrays lie on them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/error.hpp"
#include "ir/type.hpp"

namespace tpu::compiler {

// A mesh of cores. Core d sits at the row-major coordinates of device_ids^-1[d]; empty ids = iota.
struct MeshAxis {
  std::string name;
  int64_t size = 1;
};
struct Mesh {
  std::string name;
  std::vector<MeshAxis> axes;
  std::vector<int64_t> device_ids;

  int64_t size() const;
  // Coordinate of core `device` along each axis.
  Dims coordinates(int64_t device) const;
};

// How a global array lies on the cores: per dimension the mesh axes that cut it, major first. Along
// unreduced axes the cores hold terms of it: the array is their sum. Along the other axes they hold
// copies. No entries at all = replicated.
struct Sharding {
  std::vector<std::vector<int>>
      dim_axes;                     // indices into Mesh::axes; empty or one entry per dimension
  std::vector<int> unreduced = {};  // in rising order
  // What core d has is the part of core order[d] of the mesh; empty: its own. For arrays of a mesh
  // that numbers the devices otherwise than the program's.
  std::vector<int64_t> order = {};

  bool is_cut() const;                                // in any dimension
  bool is_replicated() const;                         // neither cut nor left as terms
  int64_t parts(const Mesh& mesh, size_t dim) const;  // number of pieces of dimension `dim`
  // Which piece of each dimension core `device` holds (0 where not cut).
  Dims shard_index(const Mesh& mesh, int64_t device, size_t rank) const;
  // Which term core `device` holds (0 of an array that is no sum).
  int64_t term_index(const Mesh& mesh, int64_t device) const;
  // True if cores have other parts by their order than without it.
  bool is_reordered(const Mesh& mesh) const;
  bool operator==(const Sharding&) const = default;
};

// How an array lies on the cores as XLA's HloSharding says it: tiles by dimension, and behind them,
// where there are any, the number of copies of each; the core of each tile in row-major order of
// these. No tiles: every core has all of the array.
struct TileList {
  Dims tiles;
  std::vector<int64_t> cores;
  bool copies = false;
  bool operator==(const TileList&) const = default;
};
TileList tiles_of(const Mesh& mesh, const Sharding& sharding, size_t rank);
// Throws Error without a place where no axes of the mesh cut so.
Sharding sharding_of_tiles(const Mesh& mesh, const TileList& list, size_t rank);

// The part of a global array that one core holds. Throws Error with `op` and `loc` if a dimension
// cannot be cut into equal parts.
Type local_type(const Type& global, const Mesh& mesh, const Sharding& sharding,
                const std::string& op, const LocRef& loc);

}  // namespace tpu::compiler
