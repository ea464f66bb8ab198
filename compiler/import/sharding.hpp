// Shardy attributes (meshes, tensor shardings) to the graph's Mesh and Sharding. Private to the
// import.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "import/attr_reader.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler::frontend {

constexpr int64_t kMaxCores = 4096;  // bounds products of sizes in damaged files

class ShardingReader {
 public:
  explicit ShardingReader(const Tables& tables) : tables_(tables) {}

  // Reads an `sdy.mesh` op.
  void add_mesh(const OpReader& op);

  // The mesh of the program. All shardings must use one mesh (by name or by equal axes).
  const Mesh& mesh() const { return mesh_; }

  // Sharding attribute of one tensor of `rank` dimensions.
  ShardingAttrs tensor(const OpReader& op, uint32_t attr_index, size_t rank);

  // The list of a manual computation: one sharding per value.
  std::vector<uint32_t> per_value(const OpReader& op, std::string_view property) const;

  // Axes of the mesh that the body of a manual computation works along itself.
  std::vector<std::string> manual_axes(const OpReader& op) const;

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

}  // namespace tpu::compiler::frontend
