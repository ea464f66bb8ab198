// See import_state.hpp.
#include "import/import_state.hpp"

#include <algorithm>

#include "import/replicas.hpp"
#include "ir/error_kinds.hpp"

namespace tpu::compiler::frontend {

using bytecode::Dialect;

namespace {

// Something that replicas do together, or in which they differ.
bool tells_replicas_apart(const RawOp& op) {
  const auto kind =
      op.dialect == Dialect::kVhlo ? kind_from_name(base_name(op.name)) : std::optional<Kind>();
  if (kind && (is_collective(*kind) || *kind == Kind::kReplicaId)) {
    return true;
  }
  return std::ranges::any_of(op.regions, [](const RawRegion& region) {
    return std::ranges::any_of(region.ops, tells_replicas_apart);
  });
}

}  // namespace

CoreCounts ImportState::core_counts(const Tables& tables, const ImportOptions& options) {
  bool states = false;  // the program says how many cores it is of
  const auto number = [&](std::string_view key, int64_t given) {
    const auto v = tables.integer(tables.entry(tables.raw().module.dictionary, key));
    if (v && (*v < 1 || *v > kMaxCores)) {
      throw Error("the artifact has an invalid number of devices");
    }
    const int64_t own = v.value_or(1);
    states = states || own > 1;
    if (given > 0 && own > 1 && own != given) {
      throw Contradiction("the program has " + std::string(key) + " = " + std::to_string(own) +
                              ", but the compile options have " + std::to_string(given),
                          "", nullptr);
    }
    return given > 0 ? given : own;
  };
  CoreCounts cores;
  cores.partitions = number("mhlo.num_partitions", options.partitions);
  cores.replicas = number("mhlo.num_replicas", options.replicas);
  if (!states && cores.partitions == 1 && !tells_replicas_apart(tables.raw().module)) {
    cores.replicas = 1;  // each replica runs the program by itself
  }
  if (cores.partitions > kMaxCores / cores.replicas) {
    throw Error("the artifact has an invalid number of devices");
  }
  cores.num_cores = cores.partitions * cores.replicas;
  return cores;
}

const RawRegion& ImportPart::body_of(const RawOp& op, const OpReader& reader) {
  if (op.regions.size() != 1 || op.regions[0].ops.empty()) {
    reader.fail("the body is missing");
  }
  return op.regions[0];
}

const RawOp* ImportPart::called_function(const RawOp& op) const {
  return base_name(op.name) == "call" ? referred_function(op) : nullptr;
}

const RawOp* ImportPart::referred_function(const RawOp& op) const {
  const std::string name = op.dialect == Dialect::kVhlo ? base_name(op.name) : "";
  if (name != "call" && name != "composite") {
    return nullptr;
  }
  const std::string_view property = name == "call" ? "callee" : "decomposition";
  for (const auto& [key, value] : op.properties) {
    if (key == property) {
      const auto it = functions_.find(std::string(tables_.text(value).value_or("")));
      return it == functions_.end() ? nullptr : it->second;
    }
  }
  return nullptr;
}

Value* ImportPart::operand(const OpReader& reader, size_t i) const {
  Value* v = values_[reader.raw().operands[i]];
  if (v == nullptr) {
    reader.fail("operand " + std::to_string(i) + " is not a tensor of this program");
  }
  return v;
}

std::vector<Value*> ImportPart::operands(const OpReader& reader) const {
  std::vector<Value*> out;
  for (size_t i = 0; i < reader.raw().operands.size(); ++i) {
    out.push_back(operand(reader, i));
  }
  return out;
}

std::vector<Type> ImportPart::result_types(const OpReader& reader) const {
  std::vector<Type> types;
  for (const uint32_t t : reader.raw().result_types) {
    types.push_back(reader.type(t));
  }
  return types;
}

void ImportPart::define_results(const OpReader& reader, const Op& out) {
  const RawOp& op = reader.raw();
  for (size_t i = 0; i < op.results.size(); ++i) {
    values_[op.results[i]] = out.result(i);
  }
}

void ImportPart::identity(const OpReader& reader) {
  const RawOp& op = reader.raw();
  if (op.operands.size() != op.results.size()) {
    reader.fail("a cast must have as many results as operands");
  }
  for (size_t i = 0; i < op.results.size(); ++i) {
    values_[op.results[i]] = operand(reader, i);
  }
}

void ImportPart::check_group(const OpReader& reader, std::optional<int64_t> group,
                             const Dims& dims) {
  if (!group) {
    return;
  }
  const Dims& others = state_.group_dims.emplace(*group, dims).first->second;
  if (dims != others) {
    reader.fail("an array of shape " + to_string(dims) + " cannot lie like those of group " +
                std::to_string(*group) + ", whose shape is " + to_string(others));
  }
}

Value* ImportPart::made_token(const LocRef& loc, const Type& type, Region& to) {
  return to.append(Kind::kConstant, {}, {type}, ConstantAttrs{make_splat_int(type, 0)}, loc)
      ->result();
}

}  // namespace tpu::compiler::frontend
