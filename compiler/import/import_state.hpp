// What the converter from raw VHLO ops to graph ops has read and made so far, and its parts share.
// Private to the import; see normalise.hpp for the entry.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "import/attr_reader.hpp"
#include "import/gspmd.hpp"
#include "import/import.hpp"
#include "import/op_attrs.hpp"
#include "import/sharding.hpp"

namespace tpu::compiler::frontend {

using bytecode::RawOp;
using bytecode::RawRegion;

struct ImportState {
  ImportState(const bytecode::RawModule& raw_module, const std::string& name,
              const ImportOptions& import_options)
      : raw(raw_module),
        options(import_options),
        tables(raw),
        cores(core_counts(tables, options)),
        shardings(tables, cores.partitions, atoms),
        gspmd(tables, raw.module),
        values(raw.num_values, nullptr) {
    out.name = name;
  }

  static CoreCounts core_counts(const Tables& tables, const ImportOptions& options);

  const bytecode::RawModule& raw;
  const ImportOptions options;
  Tables tables;
  const CoreCounts cores;
  MeshAtoms atoms;
  ShardingReader shardings;
  const GspmdShardMaps gspmd;
  Module out;
  std::map<std::string, const RawOp*> functions;
  std::vector<Value*> values;          // by value number
  std::map<int64_t, Dims> group_dims;  // of the arrays of a sharding group
  LocRef outer_loc;                    // of the enclosing shard_map
};

// A part of the converter: the state, and what all parts do with it.
class ImportPart {
 public:
  explicit ImportPart(ImportState& state)
      : state_(state),
        raw_(state.raw),
        options_(state.options),
        tables_(state.tables),
        cores_(state.cores),
        atoms_(state.atoms),
        shardings_(state.shardings),
        gspmd_(state.gspmd),
        out_(state.out),
        functions_(state.functions),
        values_(state.values),
        outer_loc_(state.outer_loc) {}

 protected:
  OpReader open(const RawOp& op) const {
    return {tables_, op, display_name(op), nested_loc(outer_loc_, tables_.loc(op.loc))};
  }
  static const RawRegion& body_of(const RawOp& op, const OpReader& reader);
  const RawOp* called_function(const RawOp& op) const;
  const RawOp* referred_function(const RawOp& op) const;  // of a call or composite
  Value* operand(const OpReader& reader, size_t i) const;
  std::vector<Value*> operands(const OpReader& reader) const;
  std::vector<Type> result_types(const OpReader& reader) const;
  void define_results(const OpReader& reader, const Op& out);
  void identity(const OpReader& reader);
  static Value* made_token(const LocRef& loc, const Type& type, Region& to);
  // Throws unless all arrays of a group have this shape.
  void check_group(const OpReader& reader, std::optional<int64_t> group, const Dims& dims);

  ImportState& state_;
  const bytecode::RawModule& raw_;
  const ImportOptions& options_;
  Tables& tables_;
  const CoreCounts& cores_;
  MeshAtoms& atoms_;
  ShardingReader& shardings_;
  const GspmdShardMaps& gspmd_;
  Module& out_;
  std::map<std::string, const RawOp*>& functions_;
  std::vector<Value*>& values_;
  LocRef& outer_loc_;
};

// Converts the ops of a region, for parts whose ops have bodies.
class RegionConverter {
 public:
  virtual void convert_ops(const RawRegion& region, Region& to) = 0;

 protected:
  ~RegionConverter() = default;
};

}  // namespace tpu::compiler::frontend
