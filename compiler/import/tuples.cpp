// See tuples.hpp.
#include "import/tuples.hpp"

#include <algorithm>
#include <unordered_map>

#include "import/attr_reader.hpp"
#include "import/codes.hpp"

namespace tpu::compiler::frontend {
namespace {

using bytecode::Dialect;
using bytecode::kNone;
using bytecode::RawArg;
using bytecode::RawAttr;
using bytecode::RawModule;
using bytecode::RawOp;
using bytecode::RawRegion;
using bytecode::RawType;

// Types of damaged files may hold themselves.
constexpr size_t kMostMembers = 1 << 16, kMostMade = 1 << 22;
constexpr int kMostDeep = 64;

bool is_tuple(const RawType& t) {
  return (t.dialect == Dialect::kVhlo && t.code == bytecode::vhlo_type::kTuple) ||
         (t.dialect == Dialect::kBuiltin && t.code == bytecode::builtin_type::kTuple);
}

class Flattener {
 public:
  explicit Flattener(RawModule& module) : m_(module), tables_(module) {}

  void run() {
    for (RawRegion& region : m_.module.regions) {
      for (RawOp& function : region.ops) {
        at_ = &function;
        interface(function);
        for (RawRegion& body : function.regions) {
          this->region(body);
        }
      }
    }
  }

 private:
  struct Tuple {
    uint32_t type;
    std::vector<uint32_t> members;  // values
  };

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(message, display_name(*at_), Tables(m_).loc(at_->loc));
  }

  bool is_tuple_type(uint32_t type) const { return is_tuple(m_.types[type]); }

  void members_of(uint32_t type, std::vector<uint32_t>& out) const {
    size_t steps = 0;
    members_of(type, out, 0, steps);
  }
  void members_of(uint32_t type, std::vector<uint32_t>& out, int depth, size_t& steps) const {
    if (depth > kMostDeep || ++steps > kMostMembers) {
      fail("tuples are nested more than " + std::to_string(kMostDeep) +
           " deep, or have more than " + std::to_string(kMostMembers) + " members");
    }
    if (!is_tuple_type(type)) {
      out.push_back(type);
      return;
    }
    for (const uint32_t member : m_.types[type].types) {
      members_of(member, out, depth + 1, steps);
    }
  }
  std::vector<uint32_t> members_of(uint32_t type) const {
    std::vector<uint32_t> out;
    members_of(type, out);
    return out;
  }

  // New values for the members of `value`.
  Tuple made(uint32_t type) {
    Tuple t{type, {}};
    for (size_t n = members_of(type).size(); n > 0; --n) {
      t.members.push_back(m_.num_values++);
    }
    members_made_ += t.members.size();
    if (members_made_ > kMostMade) {
      fail("the tuples of the program have more than " + std::to_string(kMostMade) + " members");
    }
    return t;
  }

  void region(RawRegion& region) {
    std::vector<RawArg> args;
    for (const RawArg& arg : region.args) {
      if (!is_tuple_type(arg.type)) {
        args.push_back(arg);
        continue;
      }
      const Tuple& tuple = values_[arg.value] = made(arg.type);
      const std::vector<uint32_t> types = members_of(arg.type);
      for (size_t i = 0; i < types.size(); ++i) {
        args.push_back({tuple.members[i], types[i], member_loc(arg.loc, i)});
      }
    }
    region.args = std::move(args);
    std::vector<RawOp> ops;
    for (RawOp& op : region.ops) {
      at_ = &op;
      if (!goes(op)) {
        for (RawRegion& inner : op.regions) {
          this->region(inner);
        }
        ops.push_back(std::move(op));
      }
    }
    region.ops = std::move(ops);
  }

  // Operands and results by members; true: the op is only about tuples.
  bool goes(RawOp& op) {
    const std::string name = op.dialect == Dialect::kVhlo ? base_name(op.name) : "";
    if (name == "get_tuple_element") {
      take_element(op);
      return true;
    }
    std::vector<uint32_t> operands;
    for (const uint32_t value : op.operands) {
      const auto it = values_.find(value);
      if (it == values_.end()) {
        operands.push_back(value);
      } else {
        operands.insert(operands.end(), it->second.members.begin(), it->second.members.end());
      }
    }
    op.operands = std::move(operands);
    if (name == "tuple") {
      if (op.results.size() != 1 || op.operands.size() != members_of(op.result_types[0]).size()) {
        fail("the operands must be the members of the result");
      }
      values_[op.results[0]] = {op.result_types[0], op.operands};
      return true;
    }
    results(op);
    return false;
  }

  void results(RawOp& op) {
    std::vector<uint32_t> results, types;
    for (size_t i = 0; i < op.results.size(); ++i) {
      if (!is_tuple_type(op.result_types[i])) {
        results.push_back(op.results[i]);
        types.push_back(op.result_types[i]);
        continue;
      }
      const Tuple& tuple = values_[op.results[i]] = made(op.result_types[i]);
      results.insert(results.end(), tuple.members.begin(), tuple.members.end());
      members_of(op.result_types[i], types);
    }
    op.results = std::move(results);
    op.result_types = std::move(types);
  }

  void take_element(const RawOp& op) {
    const auto it = op.operands.size() == 1 ? values_.find(op.operands[0]) : values_.end();
    int64_t index = -1;
    for (const auto& [name, attr] : op.properties) {
      index = name == "index" ? tables_.integer(attr).value_or(-1) : index;
    }
    if (it == values_.end() || op.results.size() != 1 || index < 0 ||
        !is_tuple_type(it->second.type)) {
      fail("the operand must be a tuple, and 'index' a member of it");
    }
    const std::vector<uint32_t>& types = m_.types[it->second.type].types;
    const auto member = static_cast<size_t>(index);
    if (member >= types.size()) {
      fail("the tuple has " + std::to_string(types.size()) + " members, none of number " +
           std::to_string(index));
    }
    size_t first = 0;
    for (size_t i = 0; i < member; ++i) {
      first += members_of(types[i]).size();
    }
    const auto begin = it->second.members.begin() + static_cast<std::ptrdiff_t>(first);
    const auto size = static_cast<std::ptrdiff_t>(members_of(types[member]).size());
    Tuple element{types[member], {begin, begin + size}};
    values_[op.results[0]] = std::move(element);
  }

  // ---- the function's type, and what is said of its arguments and results

  void interface(RawOp& function) {
    type_ = kNone;
    for (auto& [name, attr] : function.properties) {
      if (name == "function_type") {
        type_ = m_.attrs[attr].type;
      }
    }
    if (type_ == kNone || function.regions.empty()) {
      return;
    }
    const RawType old = m_.types[type_];  // copies: the tables grow
    const std::vector<uint32_t> inputs(
        old.types.begin(), old.types.begin() + static_cast<std::ptrdiff_t>(old.num_inputs));
    const std::vector<uint32_t> outputs(
        old.types.begin() + static_cast<std::ptrdiff_t>(old.num_inputs), old.types.end());
    if (std::none_of(old.types.begin(), old.types.end(),
                     [&](uint32_t t) { return is_tuple_type(t); })) {
      return;
    }
    RawType made = old;
    made.types.clear();
    for (const uint32_t t : inputs) {
      members_of(t, made.types);
    }
    made.num_inputs = made.types.size();
    for (const uint32_t t : outputs) {
      members_of(t, made.types);
    }
    m_.types.push_back(std::move(made));
    for (auto& [name, attr] : function.properties) {
      if (name == "function_type") {
        RawAttr type = m_.attrs[attr];
        type.type = static_cast<uint32_t>(m_.types.size() - 1);
        attr = add(std::move(type));
      } else if (name == "arg_attrs") {
        attr = said(attr, inputs, &outputs);
      } else if (name == "res_attrs") {
        attr = said(attr, outputs, nullptr);
      }
    }
  }

  // An array of dictionaries, one for each value of `types`, as one for each member. `results`:
  // where arguments say which result takes their memory.
  uint32_t said(uint32_t attr, const std::vector<uint32_t>& types,
                const std::vector<uint32_t>* results) {
    const auto list = tables_.array(attr);
    if (!list || list->size() != types.size()) {
      return attr;
    }
    RawAttr made = m_.attrs[attr];
    made.attrs.clear();
    for (size_t i = 0; i < types.size(); ++i) {
      const uint32_t dictionary = (*list)[i];
      if (!is_tuple_type(types[i])) {
        made.attrs.push_back(results == nullptr ? dictionary : renumbered(dictionary, *results));
        continue;
      }
      for (const std::string_view key : {"tf.aliasing_output", "sdy.sharding", "mhlo.sharding"}) {
        if (tables_.entry(dictionary, key) != kNone) {
          fail("a tuple among the arguments or results cannot have '" + std::string(key) +
               "'; give its members as arguments or results of their own");
        }
      }
      for (size_t n = members_of(types[i]).size(); n > 0; --n) {
        RawAttr empty;
        empty.dialect = Dialect::kVhlo;
        empty.code = bytecode::vhlo_attr::kDictionary;
        made.attrs.push_back(add(std::move(empty)));
      }
    }
    return add(std::move(made));
  }

  // Results in front of the one that is named may be several.
  uint32_t renumbered(uint32_t dictionary, const std::vector<uint32_t>& results) {
    const uint32_t entry = tables_.entry(dictionary, "tf.aliasing_output");
    const auto result = tables_.integer(entry);
    if (!result || *result < 0 || static_cast<size_t>(*result) >= results.size()) {
      return dictionary;
    }
    if (is_tuple_type(results[static_cast<size_t>(*result)])) {
      fail("a donated argument cannot become a tuple; return the members of the tuple as results");
    }
    int64_t number = 0;
    for (int64_t r = 0; r < *result; ++r) {
      number += static_cast<int64_t>(members_of(results[static_cast<size_t>(r)]).size());
    }
    RawAttr value = m_.attrs[entry], made = m_.attrs[dictionary];
    value.ints = {number};
    const uint32_t renumbered = add(std::move(value));
    for (auto& [name, attr] : made.pairs) {
      attr = attr == entry ? renumbered : attr;
    }
    return add(std::move(made));
  }

  // The place of member `i` of an argument with a name.
  uint32_t member_loc(uint32_t loc, size_t i) {
    if (loc == kNone || m_.attrs[loc].dialect != Dialect::kBuiltin ||
        m_.attrs[loc].code != bytecode::builtin_attr::kNameLoc) {
      return loc;
    }
    RawAttr named = m_.attrs[loc], text = m_.attrs[named.attrs[0]];
    text.text = m_.texts.emplace_back(std::string(text.text) + "." + std::to_string(i));
    named.attrs[0] = add(std::move(text));
    return add(std::move(named));
  }

  uint32_t add(RawAttr a) {
    m_.attrs.push_back(std::move(a));
    return static_cast<uint32_t>(m_.attrs.size() - 1);
  }

  RawModule& m_;
  Tables tables_;
  uint32_t type_ = kNone;  // of the function at hand
  size_t members_made_ = 0;
  const RawOp* at_ = nullptr;                   // for errors
  std::unordered_map<uint32_t, Tuple> values_;  // by the value in the artifact
};

}  // namespace

void flatten_tuples(RawModule& module) {
  if (std::any_of(module.types.begin(), module.types.end(), is_tuple)) {
    Flattener(module).run();
  }
}

}  // namespace tpu::compiler::frontend
