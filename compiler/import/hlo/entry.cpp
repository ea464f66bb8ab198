// The interface of the program: shardings, donations and aliases of the entry computation's
// parameters and root, member by member.
#include <algorithm>

#include "import/codes.hpp"
#include "import/hlo/converter.hpp"
#include "import/hlo/shardings.hpp"
#include "ir/error.hpp"
#include "ir/memory_kind.hpp"

namespace tpu::compiler::hlo {

using bytecode::kNone;

namespace {

// The leaves that a path in a tuple names: first and number. False: there is nothing there.
bool leaves_at(const Shape& shape, const Ints& path, size_t& first, size_t& count) {
  const Shape* at = &shape;
  first = 0;
  for (const int64_t index : path) {
    if (!at->is_tuple() || index < 0 || index >= std::ssize(at->members)) {
      return false;
    }
    for (int64_t i = 0; i < index; ++i) {
      first += at->members[static_cast<size_t>(i)].leaves;
    }
    at = &at->members[static_cast<size_t>(index)];
  }
  count = at->leaves;
  return true;
}

}  // namespace

void Converter::entry_attributes(const Computation& entry, RawOp& function) {
  function.properties.emplace_back("arg_attrs", build.array(argument_attributes(entry)));
  function.properties.emplace_back("res_attrs",
                                   build.array(result_attributes(entry.instructions[entry.root])));
  size_t next = 0;
  for (const uint32_t at : entry.parameters) {
    const Instruction& parameter = entry.instructions[at];
    for (size_t leaf = 0; leaf < parameter.shape.leaves; ++leaf) {
      function.regions[0].args[next++].loc = places_.name_of(parameter, leaf);
    }
  }
}

uint32_t Converter::host_memory() {
  return text(std::string(memory_kind_name(MemoryKind::kPinnedHost)));
}

// Of the layouts of the entry only their memory is among them: arrays cross the border as in files,
// row-major.
std::vector<uint32_t> Converter::argument_attributes(const Computation& entry) {
  using Entries = std::vector<std::pair<std::string_view, uint32_t>>;
  std::vector<Entries> all;
  std::vector<size_t> first;  // leaf of each parameter
  std::vector<RawOp> none;
  Scope scope{entry, none, 0, {}};
  for (const uint32_t at : entry.parameters) {
    const Instruction& parameter = entry.instructions[at];
    first.push_back(all.size());
    all.resize(all.size() + parameter.shape.leaves);
    for (size_t i = 0; i < parameter.shape.leaves; ++i) {
      if (i < parameter.same.size() && parameter.same[i] != 0) {
        all[first.back() + i].emplace_back("mhlo.is_same_data_across_replicas", build.integer(1));
      }
    }
    const std::vector<const Shape*> leaves = leaves_of(parameter.shape);
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (leaves[i]->in_host()) {
        all[first.back() + i].emplace_back("mhlo.memory_kind", host_memory());
      }
    }
    if (parameter.sharding && (!of_shardy_ || parameter.shape.is_tuple())) {
      const Step step(*this, scope, parameter);
      const GspmdTexts texts = gspmd_texts(*parameter.sharding, parameter.shape.leaves, step);
      for (size_t i = 0; i < parameter.shape.leaves; ++i) {
        all[first.back() + i].emplace_back("mhlo.sharding", text(texts[i]));
      }
    }
  }
  if (of_shardy_) {
    const std::vector<uint32_t> shardings = shardy_arguments(entry);
    for (size_t i = 0; i < all.size(); ++i) {
      if (shardings[i] != kNone) {
        std::erase_if(all[i], [](const auto& said) { return said.first == "mhlo.sharding"; });
        all[i].emplace_back("sdy.sharding", shardings[i]);
      }
    }
  }
  const Shape& results = entry.instructions[entry.root].shape;
  for (const Alias& alias : module_.aliases) {
    const bool known = alias.argument >= 0 && alias.argument < std::ssize(first);
    const auto number = static_cast<size_t>(known ? alias.argument : 0);
    size_t from = 0, count = 0, to = 0, wide = 0;
    if (!known ||
        !leaves_at(entry.instructions[entry.parameters[number]].shape, alias.argument_index, from,
                   count) ||
        (alias.has_result && (!leaves_at(results, alias.result, to, wide) || wide != count))) {
      throw Error("the HLO module is damaged: the donation of parameter " +
                  std::to_string(alias.argument) + " names what the entry computation '" +
                  std::string(entry.name) + "' lacks");
    }
    for (size_t i = 0; i < count; ++i) {
      all[first[number] + from + i].emplace_back(
          alias.has_result ? "tf.aliasing_output" : "jax.buffer_donor",
          build.integer(alias.has_result ? static_cast<int64_t>(to + i) : 1));
    }
  }
  std::vector<uint32_t> dictionaries;
  for (const Entries& entries : all) {
    dictionaries.push_back(build.dictionary(entries));
  }
  return dictionaries;
}

std::vector<uint32_t> Converter::result_attributes(const Instruction& root) {
  std::vector<uint32_t> dictionaries;
  GspmdTexts texts({});
  if (root.sharding && !of_shardy_) {
    std::vector<RawOp> none;
    Scope scope{module_.computations[module_.entry], none, 0, {}};
    texts = gspmd_texts(*root.sharding, root.shape.leaves, Step(*this, scope, root));
  }
  std::vector<uint32_t> shardings(root.shape.leaves, kNone);
  if (of_shardy_) {
    shardings = shardy_results(module_.computations[module_.entry]);
  }
  const std::vector<const Shape*> leaves = leaves_of(root.shape);
  for (size_t i = 0; i < root.shape.leaves; ++i) {
    std::vector<std::pair<std::string_view, uint32_t>> entries;
    if (shardings[i] != kNone) {
      entries.emplace_back("sdy.sharding", shardings[i]);
    }
    if (!texts.empty()) {
      entries.emplace_back("mhlo.sharding", text(texts[i]));
    }
    if (leaves[i]->in_host()) {
      entries.emplace_back("mhlo.memory_kind", host_memory());
    }
    dictionaries.push_back(build.dictionary(entries));
  }
  return dictionaries;
}

}  // namespace tpu::compiler::hlo
