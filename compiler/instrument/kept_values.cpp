// Results of one core become rows of a global array, so that those of all cores can be read.
#include "instrument/kept_values.hpp"

#include <numeric>
#include <unordered_map>
#include <utility>

#include "legalize/builder.hpp"

namespace tpu::compiler {
namespace {

ResultInfo row_of(const Module& module, const Type& row) {
  ResultInfo info;
  info.name = "kept";
  info.global = row;
  info.global.dims[0] *= module.mesh.size();
  if (!module.mesh.axes.empty()) {
    std::vector<int>& axes = info.sharding.dim_axes.emplace_back(module.mesh.axes.size());
    std::iota(axes.begin(), axes.end(), 0);
    info.sharding.dim_axes.resize(row.dims.size());
  }
  return info;
}

}  // namespace

std::vector<Value*> values_to_keep(const Module& module) {
  std::vector<Value*> values;
  for (const auto& op : module.main->body.ops) {
    if (op->kind == Kind::kReturn || op->kind == Kind::kConstant) {
      continue;
    }
    for (const auto& result : op->results) {
      if (result->type.count() != 0) {
        values.push_back(result.get());
      }
    }
  }
  return values;
}

KeptValues describe_kept(const Module& module) {
  const Region& body = module.main->body;
  KeptValues kept;
  kept.results = body.ops.back()->operands.size();
  std::unordered_map<const Value*, std::string> names;
  for (size_t i = 0; i < body.args.size(); ++i) {
    names[body.args[i].get()] = "arg" + std::to_string(i);
  }
  for (const Value* value : values_to_keep(module)) {
    KeptValue& info = kept.values.emplace_back();
    info.op = source_name(value->def->kind);
    info.where = to_string(*value->def->loc);
    info.type = value->type;
    for (const Value* operand : value->def->operands) {
      const auto known = names.find(operand);
      info.operands.push_back(known == names.end() ? "constant" : known->second);
    }
    names[value] = "%" + std::to_string(kept.values.size() - 1);
  }
  return kept;
}

void keep_values(Module& module) {
  Region& body = module.main->body;
  const std::vector<Value*> values = values_to_keep(module);
  std::unique_ptr<Op> ret = std::move(body.ops.back());
  body.ops.pop_back();
  Rewriter rw;
  Builder b(rw);
  for (Value* value : values) {
    rw.place(body, *value->def);
    Dims row = {1};
    row.insert(row.end(), value->type.dims.begin(), value->type.dims.end());
    ret->operands.push_back(b.reshape(value, row));
    module.main->results.push_back(row_of(module, ret->operands.back()->type));
  }
  body.ops.push_back(std::move(ret));
}

}  // namespace tpu::compiler
