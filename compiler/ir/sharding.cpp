// See sharding.hpp.
#include "ir/sharding.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace tpu::compiler {

int64_t Mesh::size() const {
  int64_t n = 1;
  for (const MeshAxis& a : axes) {
    n *= a.size;
  }
  return n;
}

Dims Mesh::coordinates(int64_t device) const {
  int64_t position = device;
  for (size_t i = 0; i < device_ids.size(); ++i) {
    if (device_ids[i] == device) {
      position = static_cast<int64_t>(i);
    }
  }
  Dims coords(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    coords[i] = position % axes[i].size;
    position /= axes[i].size;
  }
  return coords;
}

bool Sharding::is_cut() const {
  return std::any_of(dim_axes.begin(), dim_axes.end(),
                     [](const std::vector<int>& axes) { return !axes.empty(); });
}

bool Sharding::is_replicated() const { return !is_cut() && unreduced.empty(); }

int64_t Sharding::parts(const Mesh& mesh, size_t dim) const {
  int64_t n = 1;
  if (dim < dim_axes.size()) {
    for (const int axis : dim_axes[dim]) {
      n *= mesh.axes.at(static_cast<size_t>(axis)).size;
    }
  }
  return n;
}

namespace {

int64_t stand_in(const std::vector<int64_t>& order, int64_t device) {
  return order.empty() ? device : order.at(static_cast<size_t>(device));
}

}  // namespace

Dims Sharding::shard_index(const Mesh& mesh, int64_t device, size_t rank) const {
  const Dims coords = mesh.coordinates(stand_in(order, device));
  Dims index(rank, 0);
  for (size_t d = 0; d < rank && d < dim_axes.size(); ++d) {
    for (const int axis : dim_axes[d]) {
      const auto a = static_cast<size_t>(axis);
      index[d] = index[d] * mesh.axes.at(a).size + coords.at(a);
    }
  }
  return index;
}

int64_t Sharding::term_index(const Mesh& mesh, int64_t device) const {
  const Dims coords = mesh.coordinates(stand_in(order, device));
  int64_t index = 0;
  for (const int axis : unreduced) {
    const auto a = static_cast<size_t>(axis);
    index = index * mesh.axes.at(a).size + coords.at(a);
  }
  return index;
}

bool Sharding::is_reordered(const Mesh& mesh) const {
  Sharding plain = *this;
  plain.order.clear();
  for (int64_t d = 0; !order.empty() && d < mesh.size(); ++d) {
    if (shard_index(mesh, d, dim_axes.size()) != plain.shard_index(mesh, d, dim_axes.size()) ||
        term_index(mesh, d) != plain.term_index(mesh, d)) {
      return true;
    }
  }
  return false;
}

Type local_type(const Type& global, const Mesh& mesh, const Sharding& sharding,
                const std::string& op, const LocRef& loc) {
  Type local = global;
  for (size_t d = 0; d < local.dims.size(); ++d) {
    const int64_t parts = sharding.parts(mesh, d);
    if (local.dims[d] % parts != 0) {
      throw Error("dimension " + std::to_string(d) + " of " + to_string(global) +
                      " cannot be sharded into " + std::to_string(parts) + " equal parts",
                  op, loc);
    }
    local.dims[d] /= parts;
  }
  return local;
}

TileList tiles_of(const Mesh& mesh, const Sharding& sharding, size_t rank) {
  TileList list;
  if (!sharding.is_cut()) {
    return list;
  }
  const int64_t devices = mesh.size();
  int64_t tiles = 1;
  for (size_t d = 0; d < rank; ++d) {
    list.tiles.push_back(sharding.parts(mesh, d));
    tiles *= list.tiles.back();
  }
  std::map<Dims, std::vector<int64_t>> by_tile;  // row-major, as keys are ordered
  for (int64_t core = 0; core < devices; ++core) {
    by_tile[sharding.shard_index(mesh, core, rank)].push_back(core);
  }
  for (const auto& [tile, cores] : by_tile) {
    list.cores.insert(list.cores.end(), cores.begin(), cores.end());
  }
  list.copies = tiles < devices;
  if (list.copies) {
    list.tiles.push_back(devices / tiles);
  }
  return list;
}

namespace {

// Finds lists of axes for the dimensions from `dim` on so that every core has its tile.
class AxisSearch {
 public:
  AxisSearch(const Mesh& mesh, const TileList& list, size_t rank) : mesh_(mesh), rank_(rank) {
    found_.dim_axes.resize(rank);
    tile_of_.resize(static_cast<size_t>(mesh.size()));
    for (size_t place = 0; place < list.cores.size(); ++place) {
      Dims tile(rank);
      auto rest = static_cast<int64_t>(place);
      for (size_t d = list.tiles.size(); d-- > 0; rest /= list.tiles[d]) {
        if (d < rank) {
          tile[d] = rest % list.tiles[d];
        }
      }
      tile_of_.at(static_cast<size_t>(list.cores[place])) = std::move(tile);
    }
    wanted_.assign(list.tiles.begin(), list.tiles.begin() + static_cast<ptrdiff_t>(rank));
  }

  std::optional<Sharding> run() {
    return fill(0, rank_ == 0 ? 1 : wanted_[0]) ? std::optional(found_) : std::nullopt;
  }

 private:
  bool fits() const {
    for (int64_t core = 0; core < mesh_.size(); ++core) {
      if (found_.shard_index(mesh_, core, rank_) != tile_of_[static_cast<size_t>(core)]) {
        return false;
      }
    }
    return true;
  }

  // `left`: parts of dimension `dim` that no axis makes yet.
  bool fill(size_t dim, int64_t left) {
    if (dim == rank_) {
      return fits();
    }
    if (left == 1) {
      return fill(dim + 1, dim + 1 < rank_ ? wanted_[dim + 1] : 1);
    }
    for (size_t axis = 0; axis < mesh_.axes.size(); ++axis) {
      const int64_t size = mesh_.axes[axis].size;
      if (size == 1 || left % size != 0 || used_.contains(axis)) {
        continue;
      }
      used_.insert(axis);
      found_.dim_axes[dim].push_back(static_cast<int>(axis));
      if (fill(dim, left / size)) {
        return true;
      }
      found_.dim_axes[dim].pop_back();
      used_.erase(axis);
    }
    return false;
  }

  const Mesh& mesh_;
  const size_t rank_;
  Dims wanted_;
  std::vector<Dims> tile_of_;  // by core
  std::set<size_t> used_;
  Sharding found_;
};

}  // namespace

Sharding sharding_of_tiles(const Mesh& mesh, const TileList& list, size_t rank) {
  if (list.tiles.empty()) {
    return {};
  }
  int64_t count = 1;
  for (const int64_t n : list.tiles) {
    count *= std::max<int64_t>(n, 0);
  }
  std::vector<int64_t> sorted = list.cores;
  std::sort(sorted.begin(), sorted.end());
  bool all = static_cast<int64_t>(sorted.size()) == mesh.size() && count == mesh.size() &&
             list.tiles.size() == rank + (list.copies ? 1 : 0);
  for (size_t i = 0; all && i < sorted.size(); ++i) {
    all = sorted[i] == static_cast<int64_t>(i);
  }
  if (!all) {
    throw Error("a sharding must divide its " + std::to_string(rank) +
                " dimensions into one tile for each of the " + std::to_string(mesh.size()) +
                " cores");
  }
  auto found = AxisSearch(mesh, list, rank).run();
  if (!found) {
    throw Error("no axes of the program's mesh produce this sharding");
  }
  return std::move(*found);
}

}  // namespace tpu::compiler
