// Shardy attributes to Mesh and Sharding. Sub-axes (one axis cut into several) are refused.
#include "import/sharding.hpp"

#include <algorithm>
#include <set>

#include "import/codes.hpp"

namespace tpu::compiler::frontend {
namespace {

using bytecode::Dialect;
using bytecode::RawAttr;
namespace sa = bytecode::sdy_attr;

bool is_sdy(const RawAttr& a, uint32_t code) {
  return a.dialect == Dialect::kSdy && a.code == code;
}

bool same_mesh(const Mesh& a, const Mesh& b) {
  return a.device_ids == b.device_ids &&
         std::equal(a.axes.begin(), a.axes.end(), b.axes.begin(), b.axes.end(),
                    [](const MeshAxis& x, const MeshAxis& y) {
                      return x.name == y.name && x.size == y.size;
                    });
}

}  // namespace

Mesh ShardingReader::read_mesh(const OpReader& op, uint32_t attr_index) const {
  const RawAttr& a = tables_.attr(attr_index);
  if (!is_sdy(a, sa::kMesh)) {
    op.fail("a mesh was expected");
  }
  Mesh mesh;
  int64_t cores = 1;
  for (const uint32_t axis : a.attrs) {
    const RawAttr& x = tables_.attr(axis);
    if (!is_sdy(x, sa::kMeshAxis) || x.ints[0] < 1 || x.ints[0] > kMaxCores) {
      op.fail("a mesh axis with an impossible size");
    }
    mesh.axes.push_back({std::string(x.text), x.ints[0]});
    cores *= x.ints[0];
    if (cores > kMaxCores) {
      op.fail("a mesh with an impossible number of devices");
    }
  }
  mesh.device_ids = a.ints;
  if (!mesh.device_ids.empty()) {
    const std::set<int64_t> ids(a.ints.begin(), a.ints.end());
    const bool is_permutation = static_cast<int64_t>(ids.size()) == cores &&
                                a.ints.size() == ids.size() && *ids.begin() == 0 &&
                                *ids.rbegin() == cores - 1;
    if (!is_permutation) {
      op.fail("the device ids of the mesh must be a permutation of 0.." +
              std::to_string(cores - 1));
    }
  }
  return mesh;
}

void ShardingReader::add_mesh(const OpReader& op) {
  Mesh mesh = read_mesh(op, op.property("mesh"));
  mesh.name = op.text("sym_name");
  meshes_[mesh.name] = std::move(mesh);
}

void ShardingReader::use_mesh(const OpReader& op, uint32_t attr_index) {
  Mesh mesh;
  if (const auto name = tables_.text(attr_index)) {
    const auto it = meshes_.find(std::string(*name));
    if (it == meshes_.end()) {
      op.fail("the mesh @" + std::string(*name) + " is not defined");
    }
    mesh = it->second;
  } else {
    mesh = read_mesh(op, attr_index);
  }
  if (mesh.axes.empty()) {
    return;  // the empty mesh cuts nothing
  }
  if (has_mesh_ && !same_mesh(mesh, mesh_)) {
    op.fail("the program uses two different meshes; use one mesh for all of it");
  }
  if (!has_mesh_) {
    mesh_ = std::move(mesh);
    has_mesh_ = true;
  }
}

ShardingAttrs ShardingReader::tensor(const OpReader& op, uint32_t attr_index, size_t rank) {
  const RawAttr& a = tables_.attr(attr_index);
  if (!is_sdy(a, sa::kTensorSharding) && !is_sdy(a, sa::kTensorShardingUnreduced)) {
    op.fail("a tensor sharding was expected");
  }
  use_mesh(op, a.attrs[0]);
  const auto num_dims = static_cast<size_t>(a.ints[0]);
  if (num_dims != rank) {
    op.fail("a sharding of " + std::to_string(num_dims) + " dimensions for a tensor of " +
            std::to_string(rank));
  }
  ShardingAttrs out;
  std::vector<std::vector<int>>& cut = out.sharding.dim_axes;
  std::set<int> used;
  for (size_t d = 0; d < num_dims; ++d) {
    const RawAttr& dim = tables_.attr(a.attrs[1 + d]);
    if (!is_sdy(dim, sa::kDimSharding)) {
      op.fail("a dimension sharding was expected");
    }
    cut.emplace_back();
    out.open.push_back(dim.ints.at(0) == 0);
    for (const uint32_t ref : dim.attrs) {
      const RawAttr& axis = tables_.attr(ref);
      if (!is_sdy(axis, sa::kAxisRef) || !axis.attrs.empty()) {
        op.fail("shardings by a part of a mesh axis are not supported");
      }
      int index = -1;
      for (size_t i = 0; i < mesh_.axes.size(); ++i) {
        index = mesh_.axes[i].name == axis.text ? static_cast<int>(i) : index;
      }
      if (index < 0 || !used.insert(index).second) {
        op.fail("the sharding names the axis '" + std::string(axis.text) +
                "', which the mesh lacks or which is used twice");
      }
      cut.back().push_back(index);
    }
  }
  if (out.sharding.is_replicated()) {
    cut.clear();
  }
  return out;
}

std::vector<uint32_t> ShardingReader::per_value(const OpReader& op,
                                                std::string_view property) const {
  const RawAttr& a = tables_.attr(op.property(property));
  if (!is_sdy(a, sa::kPerValue) && !is_sdy(a, sa::kPerValueAlso)) {
    op.fail("the property '" + std::string(property) + "' must be a list of shardings");
  }
  return a.attrs;
}

std::vector<std::string> ShardingReader::manual_axes(const OpReader& op) const {
  std::vector<std::string> axes;
  for (const uint32_t axis : tables_.attr(op.property("manual_axes")).attrs) {
    axes.emplace_back(tables_.text(axis).value_or(""));
  }
  return axes;
}

// "devices=[tiles of each dimension]", with the count of copies last where last_tile_dim_replicate
// says so, or as many last entries as last_tile_dims has.
bool is_replicated_gspmd(std::string_view text, int64_t num_cores) {
  if (text == "{replicated}" || num_cores == 1) {
    return true;
  }
  constexpr std::string_view kTiles = "{devices=[", kCopies = "last_tile_dim_replicate";
  const size_t end = text.find(']');
  if (!text.starts_with(kTiles) || end == std::string_view::npos ||
      text.find("last_tile_dims") != std::string_view::npos) {
    return false;
  }
  std::string_view tiles = text.substr(kTiles.size(), end - kTiles.size());
  if (text.find(kCopies) != std::string_view::npos) {
    const size_t last = tiles.rfind(',');
    tiles = last == std::string_view::npos ? "" : tiles.substr(0, last);
  }
  // Whole where all tiles are 1: "1,1,1".
  for (size_t i = 0; i < tiles.size(); ++i) {
    if (tiles[i] != (i % 2 == 0 ? '1' : ',')) {
      return false;
    }
  }
  return true;
}

}  // namespace tpu::compiler::frontend
