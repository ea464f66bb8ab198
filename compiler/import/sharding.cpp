// See sharding.hpp.
#include "import/sharding.hpp"

#include <algorithm>
#include <ranges>

#include "import/codes.hpp"

namespace tpu::compiler::frontend {
namespace {

using bytecode::Dialect;
using bytecode::RawAttr;
namespace sa = bytecode::sdy_attr;
namespace sh = bytecode::stablehlo_attr;

bool is_sdy(const RawAttr& a, uint32_t code) {
  return a.dialect == Dialect::kSdy && a.code == code;
}

// `part`: what is named of the axis, or null.
Numbering named_part(const OpReader& op, const Numbering& axis, const RawAttr* part,
                     const std::string& name) {
  if (part == nullptr) {
    return axis;
  }
  const int64_t before = part->ints.at(0), size = part->ints.at(1);
  if (before < 1 || size < 1 || before > kMaxCores || size > kMaxCores ||
      axis.size % (before * size) != 0) {
    op.contradict("the sharding names a part of " + name + " that does not divide its " +
                  std::to_string(axis.size) + " devices");
  }
  return part_of(axis, before, size);
}

}  // namespace

Mesh ShardingReader::read_mesh(const OpReader& op, uint32_t attr_index) const {
  const RawAttr& a = tables_.attr(attr_index);
  if (!is_sdy(a, sa::kMesh)) {
    op.contradict("expected a mesh, found another attribute");
  }
  Mesh mesh;
  int64_t cores = 1;
  for (const uint32_t axis : a.attrs) {
    const RawAttr& x = tables_.attr(axis);
    if (!is_sdy(x, sa::kMeshAxis) || x.ints[0] < 1 || x.ints[0] > kMaxCores) {
      op.contradict("a mesh axis has an invalid size");
    }
    mesh.axes.push_back({std::string(x.text), x.ints[0]});
    cores *= x.ints[0];
    if (cores > kMaxCores) {
      op.contradict("a mesh has too many devices");
    }
  }
  mesh.device_ids = a.ints;
  if (mesh.axes.empty() && a.ints.size() == 1) {  // one device has the array: so do the others
    mesh.device_ids.clear();
  }
  if (!mesh.device_ids.empty() &&
      !std::ranges::is_permutation(mesh.device_ids, std::views::iota(int64_t{0}, cores))) {
    op.contradict("the device ids of the mesh must name each of 0.." + std::to_string(cores - 1) +
                  " once");
  }
  return mesh;
}

void ShardingReader::add_mesh(const OpReader& op) {
  Mesh mesh = read_mesh(op, op.property("mesh"));
  mesh.name = op.text("sym_name");
  mesh_attrs_[mesh.name] = op.property("mesh");
  meshes_[mesh.name] = std::move(mesh);
}

const ShardingReader::NamedMesh& ShardingReader::mesh_of(const OpReader& op,
                                                         const RawAttr& sharding) {
  const uint32_t attr_index = sharding.attrs[0];
  const auto known = used_.find(attr_index);
  if (known != used_.end()) {
    return known->second;
  }
  const auto name = tables_.text(attr_index);
  if (!name) {
    return used_[attr_index] = use(op, read_mesh(op, attr_index));
  }
  return used_[attr_index] = use(op, named_mesh(op, *name));
}

const Mesh& ShardingReader::named_mesh(const OpReader& op, std::string_view name) const {
  const auto it = meshes_.find(name);
  if (it == meshes_.end()) {
    op.contradict("the mesh @" + std::string(name) + " is not defined");
  }
  return it->second;
}

ShardingReader::NamedMesh ShardingReader::use(const OpReader& op, Mesh mesh) {
  const int64_t size = mesh.size();
  if (size > 1 && size != cores_) {
    op.contradict("the mesh has " + std::to_string(size) + " devices but the program " +
                  std::to_string(cores_) + " partitions");
  }
  NamedMesh named{std::move(mesh), {}, {}};
  if (size == 1) {  // it cuts nothing
    named.axes.assign(named.mesh.axes.size(), {{0}, 1});
    return named;
  }
  if (!atoms_.known()) {
    atoms_.adopt(named.mesh);
  }
  named.order = atoms_.order_of(named.mesh);
  for (const Numbering& axis : numberings(named.mesh)) {
    named.axes.push_back(reordered(axis, named.order));
  }
  return named;
}

std::vector<int> ShardingReader::atoms_of(const OpReader& op, const NamedMesh& mesh,
                                          std::string_view name, const RawAttr* part) const {
  size_t i = 0;
  while (i < mesh.mesh.axes.size() && mesh.mesh.axes[i].name != name) {
    ++i;
  }
  const std::string axis = "the axis '" + std::string(name) + "'";
  if (i == mesh.mesh.axes.size()) {
    std::string names;
    for (const MeshAxis& a : mesh.mesh.axes) {
      names += (names.empty() ? "" : ", ") + a.name;
    }
    op.contradict("the sharding names " + axis + "; the mesh has " +
                  (names.empty() ? "no axes" : names));
  }
  const Numbering numbering = named_part(op, mesh.axes[i], part, axis);
  const auto atoms = atoms_.find(numbering);
  if (!atoms) {
    op.contradict("the part of " + axis + " is not a product of prime factors of its size");
  }
  return *atoms;
}

const RawAttr& ShardingReader::tensor_attr(const OpReader& op, uint32_t attr_index) const {
  const RawAttr& a = tables_.attr(attr_index);
  if (!is_sdy(a, sa::kTensorSharding) && !is_sdy(a, sa::kTensorShardingUnreduced) &&
      !is_sdy(a, sa::kTensorShardingReduction)) {
    op.contradict("a tensor sharding was expected");
  }
  return a;
}

ShardingAttrs ShardingReader::tensor(const OpReader& op, uint32_t attr_index, size_t rank) {
  const RawAttr& a = tensor_attr(op, attr_index);
  const NamedMesh& mesh = mesh_of(op, a);
  const auto num_dims = static_cast<size_t>(a.ints[0]);
  const bool on_one_device = mesh.mesh.axes.empty() && num_dims == 0;
  if (num_dims != rank && !on_one_device) {
    op.contradict("a sharding of " + std::to_string(num_dims) + " dimensions for a tensor of " +
                  std::to_string(rank));
  }
  ShardingAttrs out;
  std::vector<std::vector<int>>& cut = out.sharding.dim_axes;
  std::set<int> used;
  for (size_t d = 0; d < num_dims; ++d) {
    const RawAttr& dim = tables_.attr(a.attrs[1 + d]);
    if (!is_sdy(dim, sa::kDimSharding)) {
      op.contradict("a dimension sharding was expected");
    }
    cut.push_back(listed_axes(op, mesh, dim.attrs, used));
    out.open.push_back(dim.ints.at(0) == 0);
  }
  if (!out.sharding.is_cut()) {
    cut.clear();
  }
  const auto replicated = a.attrs.begin() + 1 + a.ints[0];
  const auto unreduced = replicated + a.ints[1];
  listed_axes(op, mesh, {replicated, unreduced}, used);
  out.sharding.unreduced = listed_axes(op, mesh, {unreduced, a.attrs.end()}, used);
  std::sort(out.sharding.unreduced.begin(), out.sharding.unreduced.end());
  out.sharding.order = mesh.order;
  if (!out.sharding.is_reordered(atoms_.mesh())) {
    out.sharding.order.clear();
  }
  const bool added = a.code != sa::kTensorShardingReduction || a.ints[3] == 0;
  if (!out.sharding.unreduced.empty() && !added) {
    op.fail("the terms along the unreduced axes are not added; nothing else is supported");
  }
  return out;
}

// The atoms of axes that are listed in one sharding, each once.
std::vector<int> ShardingReader::listed_axes(const OpReader& op, const NamedMesh& mesh,
                                             const std::vector<uint32_t>& refs,
                                             std::set<int>& used) const {
  std::vector<int> all;
  for (const uint32_t ref : refs) {
    const RawAttr& axis = tables_.attr(ref);
    if (!is_sdy(axis, sa::kAxisRef) ||
        (!axis.attrs.empty() && !is_sdy(tables_.attr(axis.attrs[0]), sa::kSubAxis))) {
      op.contradict("expected a mesh axis, found another attribute");
    }
    const RawAttr* part = axis.attrs.empty() ? nullptr : &tables_.attr(axis.attrs[0]);
    for (const int atom : atoms_of(op, mesh, axis.text, part)) {
      if (!used.insert(atom).second) {
        op.contradict("the sharding names the axis '" + std::string(axis.text) +
                      "' twice; an axis can shard an array only once");
      }
      all.push_back(atom);
    }
  }
  return all;
}

std::vector<uint32_t> ShardingReader::per_value(const OpReader& op,
                                                std::string_view property) const {
  const RawAttr& a = tables_.attr(op.property(property));
  if (!is_sdy(a, sa::kPerValue) && !is_sdy(a, sa::kPerValueAlso)) {
    op.contradict("the property '" + std::string(property) + "' must be a list of shardings");
  }
  return a.attrs;
}

bool ShardingReader::is_groups(uint32_t attr_index) const {
  const RawAttr& a = tables_.attr(attr_index);
  return a.dialect == Dialect::kStablehlo && a.code == sh::kGroupsByAxes;
}

Groups ShardingReader::groups(const OpReader& op, uint32_t attr_index) const {
  const RawAttr& a = tables_.attr(attr_index);
  const auto name = tables_.text(a.attrs.at(0));
  if (!name) {
    op.contradict("groups along axes must name a mesh of the program");
  }
  const Mesh& mesh = named_mesh(op, *name);
  std::vector<Numbering> others = numberings(mesh), along;
  size_t size = 1;
  for (size_t i = 1; i < a.attrs.size(); ++i) {
    const RawAttr& ref = tables_.attr(a.attrs[i]);
    const auto axis = std::ranges::find(mesh.axes, ref.text, &MeshAxis::name);
    if (ref.dialect != Dialect::kStablehlo || ref.code != sh::kAxisRef || axis == mesh.axes.end()) {
      op.contradict("groups along an axis that the mesh @" + mesh.name + " does not have");
    }
    const auto number = static_cast<size_t>(axis - mesh.axes.begin());
    const RawAttr* part = ref.attrs.empty() ? nullptr : &tables_.attr(ref.attrs[0]);
    const Numbering& digit = along.emplace_back(
        named_part(op, numberings(mesh)[number], part, "the axis '" + axis->name + "'"));
    size *= static_cast<size_t>(digit.size);
    const int64_t behind = axis->size / digit.size / (part == nullptr ? 1 : part->ints[0]);
    for (size_t d = 0; d < digit.of_device.size(); ++d) {
      others[number].of_device[d] -= digit.of_device[d] * behind;
    }
  }
  const auto at = [](const std::vector<Numbering>& axes, size_t device) {
    std::vector<int64_t> place;
    for (const Numbering& n : axes) {
      place.push_back(n.of_device[device]);
    }
    return place;
  };
  std::map<std::vector<int64_t>, std::map<std::vector<int64_t>, int64_t>> by_place;
  for (size_t d = 0; d < static_cast<size_t>(mesh.size()); ++d) {
    by_place[at(others, d)][at(along, d)] = static_cast<int64_t>(d);
  }
  Groups all;
  for (const auto& [place, group] : by_place) {
    auto& ids = all.emplace_back();
    std::ranges::copy(group | std::views::values, std::back_inserter(ids));
    if (ids.size() != size) {
      op.contradict("groups along axes of which one is named twice");
    }
  }
  return all;
}

ShardingRule ShardingReader::rule(const OpReader& op, uint32_t attr_index,
                                  const std::vector<Type>& operands,
                                  const std::vector<Type>& results) const {
  const RawAttr& a = tables_.attr(attr_index);
  if (!is_sdy(a, sa::kShardingRule)) {
    op.contradict("a sharding rule was expected");
  }
  if (a.ints[0] != static_cast<int64_t>(operands.size()) ||
      a.ints[1] != static_cast<int64_t>(results.size())) {
    op.contradict("a sharding rule of another number of operands or results");
  }
  ShardingRule rule;
  const auto sizes = a.ints.begin() + 4, summed = sizes + a.ints[2], blocked = summed + a.ints[3];
  rule.sizes.assign(sizes, summed);
  rule.kinds.assign(rule.sizes.size(), LoopKind::kPass);
  for (auto loop = summed; loop != a.ints.end(); ++loop) {
    if (*loop < 0 || *loop >= a.ints[2]) {
      op.contradict("a sharding rule that names a factor which it does not have");
    }
    rule.kinds[static_cast<size_t>(*loop)] =
        loop < blocked ? LoopKind::kReduce : LoopKind::kBlocked;
  }
  for (size_t t = 0; t < operands.size() + results.size(); ++t) {
    const bool in = t < operands.size();
    (in ? rule.in : rule.out)
        .push_back(
            loops(op, a.attrs[t], rule.sizes, in ? operands[t] : results[t - operands.size()]));
  }
  return rule;
}

// By dimension; none for one that is not the product of its loops: a rule may take the smallest of
// several sizes for one loop.
std::vector<std::vector<int64_t>> ShardingReader::loops(const OpReader& op, uint32_t attr_index,
                                                        const Dims& sizes, const Type& type) const {
  const RawAttr& tensor = tables_.attr(attr_index);
  if (!is_sdy(tensor, sa::kTensorMapping) || tensor.attrs.size() != type.dims.size()) {
    op.contradict("a sharding rule of other dimensions than the op's");
  }
  std::vector<std::vector<int64_t>> dims;
  for (size_t d = 0; d < tensor.attrs.size(); ++d) {
    dims.push_back(tables_.attr(tensor.attrs[d]).ints);
    int64_t size = 1;
    for (const int64_t loop : dims.back()) {
      if (loop < 0 || loop >= static_cast<int64_t>(sizes.size())) {
        op.contradict("a sharding rule that names a factor which it does not have");
      }
      size *= sizes[static_cast<size_t>(loop)];
    }
    if (size != type.dims[d]) {
      dims.back().clear();
    }
  }
  return dims;
}

std::optional<int64_t> ShardingReader::one_device(const OpReader& op, uint32_t list) const {
  const RawAttr& all = tables_.attr(list);
  if ((!is_sdy(all, sa::kPerValue) && !is_sdy(all, sa::kPerValueAlso)) || all.attrs.empty()) {
    op.contradict("a list of shardings was expected");
  }
  uint32_t mesh = tensor_attr(op, all.attrs[0]).attrs[0];
  if (const auto name = tables_.text(mesh)) {
    const auto it = mesh_attrs_.find(*name);
    if (it == mesh_attrs_.end()) {
      op.contradict("the mesh @" + std::string(*name) + " is not defined");
    }
    mesh = it->second;
  }
  const RawAttr& a = tables_.attr(mesh);
  const bool one = is_sdy(a, sa::kMesh) && a.attrs.empty() && a.ints.size() == 1;
  return one ? std::optional(a.ints[0]) : std::nullopt;
}

std::vector<int> ShardingReader::manual_axes(const OpReader& op, uint32_t sharding) {
  const NamedMesh& mesh = mesh_of(op, tensor_attr(op, sharding));
  std::vector<int> axes;
  for (const uint32_t axis : tables_.attr(op.property("manual_axes")).attrs) {
    const std::vector<int> atoms = atoms_of(op, mesh, tables_.text(axis).value_or(""), nullptr);
    axes.insert(axes.end(), atoms.begin(), atoms.end());
  }
  return axes;
}

}  // namespace tpu::compiler::frontend
