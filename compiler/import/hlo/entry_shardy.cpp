// What Shardy says of the program as a whole: meshes, and the shardings of arguments and results.
#include <algorithm>

#include "import/codes.hpp"
#include "import/hlo/converter.hpp"
#include "import/hlo/shardy_names.hpp"
#include "ir/error.hpp"

namespace tpu::compiler::hlo {

using bytecode::kNone;

namespace {

struct Makers {
  std::vector<const Instruction*> of_leaves;  // custom calls that shard them; null: another one
  const Instruction* tuple = nullptr;         // that takes them, if one does
};

// The custom calls that give the leaves of the root their shardings.
Makers makers_of_results(const Computation& c) {
  const Instruction* at = &c.instructions[c.root];
  const size_t leaves = at->shape.leaves;
  Makers makers;
  while (at->opcode == "get-tuple-element" && at->operands.size() == 1) {
    const Instruction& tuple = c.instructions[at->operands[0]];
    if (tuple.opcode != "tuple" || at->tuple_index < 0 ||
        at->tuple_index >= std::ssize(tuple.operands)) {
      break;
    }
    makers.tuple = &tuple;
    at = &c.instructions[tuple.operands[static_cast<size_t>(at->tuple_index)]];
  }
  std::vector<const Instruction*>& all = makers.of_leaves;
  const auto add = [&](const Instruction& made) {
    const bool is = made.opcode == "custom-call" && shardy::target_of(made) == shardy::kResult;
    all.insert(all.end(), std::min(leaves, made.shape.leaves), is ? &made : nullptr);
  };
  const bool is_tuple = at->opcode == "tuple";
  makers.tuple = is_tuple ? at : makers.tuple;
  for (size_t i = 0; is_tuple && i < at->operands.size() && all.size() < leaves; ++i) {
    add(c.instructions[at->operands[i]]);
  }
  if (!is_tuple) {
    add(*at);
  }
  all.resize(leaves);
  return makers;
}

}  // namespace

void Converter::read_meshes(std::vector<RawOp>& to) {
  const std::string_view* text = shardy::find(module_.attributes, shardy::kMeshes);
  if (text == nullptr) {
    return;
  }
  of_shardy_ = true;
  const Computation& entry = module_.computations[module_.entry];
  Makers makers = makers_of_results(entry);
  result_makers_ = std::move(makers.of_leaves);
  makes_result_.insert(result_makers_.begin(), result_makers_.end());
  for (const Instruction& at : entry.instructions) {
    for (size_t i = 0; &at != makers.tuple && i < at.operands.size(); ++i) {
      makes_result_.erase(&entry.instructions[at.operands[i]]);
    }
  }
  try {
    for (const auto& [name, mesh] : shardy.meshes(*text)) {
      RawOp& op = to.emplace_back();
      op.dialect = bytecode::Dialect::kSdy;
      op.dialect_name = "sdy";
      op.name = "mesh";
      op.properties = {{"mesh", mesh}, {"sym_name", build.text(name)}};
    }
  } catch (const Error& e) {
    throw Error("the HLO module is damaged: its frontend attribute '" +
                std::string(shardy::kMeshes) + "': " + e.message());
  }
}

// Of the leaves of tuples, which have no attributes of their own. Empty: the module has no such
// list.
std::vector<uint32_t> Converter::listed_shardings(std::string_view key, size_t leaves) {
  const std::string_view* text = shardy::find(module_.attributes, key);
  if (text == nullptr) {
    return {};
  }
  try {
    std::vector<uint32_t> all = shardy.per_value(*text);
    if (all.size() != leaves) {
      throw Error(std::to_string(all.size()) + " shardings, expected " + std::to_string(leaves));
    }
    return all;
  } catch (const Error& e) {
    throw Error("the HLO module is damaged: its frontend attribute '" + std::string(key) +
                "': " + e.message());
  }
}

std::vector<uint32_t> Converter::shardy_arguments(const Computation& entry) {
  size_t leaves = 0;
  for (const uint32_t at : entry.parameters) {
    leaves += entry.instructions[at].shape.leaves;
  }
  std::vector<uint32_t> all = listed_shardings(shardy::kTupleArguments, leaves);
  if (!all.empty()) {
    return all;
  }
  std::vector<RawOp> none;
  Scope scope{entry, none, 0, {}};
  for (const uint32_t at : entry.parameters) {
    const Instruction& parameter = entry.instructions[at];
    const std::string_view* text = shardy::find(parameter.attributes, shardy::kSharding);
    if (text == nullptr || parameter.shape.is_tuple()) {
      all.insert(all.end(), parameter.shape.leaves, kNone);
    } else {
      all.push_back(Step(*this, scope, parameter).read_attribute(shardy::kSharding, [&] {
        return shardy.sharding(*text);
      }));
    }
  }
  return all;
}

std::vector<uint32_t> Converter::shardy_results(const Computation& entry) {
  std::vector<uint32_t> all = listed_shardings(shardy::kTupleResults, result_makers_.size());
  if (!all.empty()) {
    return all;
  }
  std::vector<RawOp> none;
  Scope scope{entry, none, 0, {}};
  for (const Instruction* made : result_makers_) {
    all.push_back(kNone);
    const std::string_view* text =
        made == nullptr ? nullptr : shardy::find(made->attributes, shardy::kSharding);
    if (text != nullptr) {
      const Step step(*this, scope, *made);
      const auto& list =
          step.read_attribute(shardy::kSharding, [&] { return shardy.per_value(*text); });
      all.back() = list.size() == 1 ? list[0] : kNone;
    }
  }
  return all;
}

}  // namespace tpu::compiler::hlo
