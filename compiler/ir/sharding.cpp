// See sharding.hpp.
#include "ir/sharding.hpp"

#include <algorithm>

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
                      " cannot be cut into " + std::to_string(parts) + " equal parts",
                  op, loc);
    }
    local.dims[d] /= parts;
  }
  return local;
}

}  // namespace tpu::compiler
