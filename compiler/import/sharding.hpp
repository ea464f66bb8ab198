// Shardy attributes (meshes, tensor shardings) to the graph's Sharding, in atoms. Private to the
// import.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "import/atoms.hpp"
#include "import/attr_reader.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler::frontend {

constexpr int64_t kMaxCores = 4096;  // bounds products of sizes in damaged files

class ShardingReader {
 public:
  // `cores` of the program; what cuts adds to `atoms`.
  ShardingReader(const Tables& tables, int64_t cores, MeshAtoms& atoms)
      : tables_(tables), cores_(cores), atoms_(atoms) {}

  // Reads an `sdy.mesh` op.
  void add_mesh(const OpReader& op);

  // Sharding attribute of one tensor of `rank` dimensions.
  ShardingAttrs tensor(const OpReader& op, uint32_t attr_index, size_t rank);

  // The list of a manual computation: one sharding per value.
  std::vector<uint32_t> per_value(const OpReader& op, std::string_view property) const;

  // The attribute `sdy.sharding_rule` of an op with these operands and results.
  ShardingRule rule(const OpReader& op, uint32_t attr_index, const std::vector<Type>& operands,
                    const std::vector<Type>& results) const;

  // Groups of devices along axes of a mesh, as a collective of plain StableHLO may have them in
  // place of a list: those of one group differ in these axes alone, and have their order.
  bool is_groups(uint32_t attr_index) const;
  Groups groups(const OpReader& op, uint32_t attr_index) const;

  // The device that alone has what the list of shardings of an op's results is of; nothing: it
  // names none.
  std::optional<int64_t> one_device(const OpReader& op, uint32_t list) const;

  // Axes along which the body of a manual computation works itself, in the mesh of `sharding`, one
  // of its tensors.
  std::vector<int> manual_axes(const OpReader& op, uint32_t sharding);

 private:
  // A mesh by the names of its axes. No axes: it cuts nothing.
  struct NamedMesh {
    Mesh mesh;
    std::vector<Numbering> axes;
    std::vector<int64_t> order = {};  // Sharding::order of what it cuts
  };

  Mesh read_mesh(const OpReader& op, uint32_t attr_index) const;
  const Mesh& named_mesh(const OpReader& op, std::string_view name) const;
  const NamedMesh& mesh_of(const OpReader& op, const bytecode::RawAttr& sharding);
  NamedMesh use(const OpReader& op, Mesh mesh);
  std::vector<std::vector<int64_t>> loops(const OpReader& op, uint32_t attr_index,
                                          const Dims& sizes, const Type& type) const;
  const bytecode::RawAttr& tensor_attr(const OpReader& op, uint32_t attr_index) const;
  std::vector<int> listed_axes(const OpReader& op, const NamedMesh& mesh,
                               const std::vector<uint32_t>& refs, std::set<int>& used) const;
  // Atoms of an axis, or of the part of it that `axis` names.
  std::vector<int> atoms_of(const OpReader& op, const NamedMesh& mesh, std::string_view name,
                            const bytecode::RawAttr* part) const;

  const Tables& tables_;
  const int64_t cores_;
  MeshAtoms& atoms_;
  std::map<std::string, Mesh, std::less<>> meshes_;
  std::map<std::string, uint32_t, std::less<>> mesh_attrs_;
  std::map<uint32_t, NamedMesh> used_;  // by attribute
};

}  // namespace tpu::compiler::frontend
