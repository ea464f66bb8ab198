// Shardy attributes (meshes, tensor shardings) to the graph's Mesh and Sharding. Private to the
// import.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "import/attr_reader.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler::frontend {

class ShardingReader {
 public:
  explicit ShardingReader(const Tables& tables) : tables_(tables) {}

  // Reads an `sdy.mesh` op.
  void add_mesh(const OpReader& op);

  // The mesh of the program. All shardings must use one mesh (by name or by equal axes).
  const Mesh& mesh() const { return mesh_; }

  // Sharding attribute of one tensor of `rank` dimensions.
  Sharding tensor(const OpReader& op, uint32_t attr_index, size_t rank);

  // False for a dimension that may be cut further (P.UNCONSTRAINED).
  bool is_closed(uint32_t attr_index, size_t dim) const;

  // The list of a manual computation: one sharding per value.
  std::vector<uint32_t> per_value(const OpReader& op, std::string_view property) const;

  // Checks that the manual axes are all axes of the mesh (axes of size 1 do not matter).
  void check_manual_axes(const OpReader& op) const;

 private:
  void use_mesh(const OpReader& op, uint32_t attr_index);
  Mesh read_mesh(const OpReader& op, uint32_t attr_index) const;

  const Tables& tables_;
  std::map<std::string, Mesh> meshes_;
  Mesh mesh_;
  bool has_mesh_ = false;
};

// True if a sharding in the language of GSPMD ("{devices=[8,1]<=[8]}") gives every core the whole
// array.
bool is_replicated_gspmd(std::string_view text, int64_t num_cores);

// The type one core holds of a global array; an error if a dimension does not divide.
Type local_type(const OpReader& op, const Type& global, const Mesh& mesh, const Sharding& sharding);

}  // namespace tpu::compiler::frontend
