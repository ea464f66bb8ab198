// See manual_parts.hpp.
//
//   %1 = custom_call @SPMDFullToShardShape(%0)       %5 = custom_call @Sharding(%0) {of %0}
//   %2 = constant                                    %1 = custom_call @SPMDFullToShardShape(%5)
//   %3 = add %1, %2                            =>    %6 = call @manual_part(%1)
//   %4 = custom_call @SPMDShardToFullShape(%3)       %4 = custom_call @SPMDShardToFullShape(%6)
//
// The function has copies of the constants, and of what is computed from constants and the number
// of the core alone. Other values of the program around it become arguments, replicated.
#include "import/manual_parts.hpp"

#include <functional>
#include <iterator>
#include <map>
#include <queue>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "import/gspmd.hpp"
#include "import/manual_circles.hpp"
#include "import/manual_finder.hpp"
#include "import/manual_ops.hpp"

namespace tpu::compiler::frontend {
namespace {

using bytecode::kNone;
using bytecode::RawModule;
using bytecode::RawOp;
using bytecode::RawRegion;

constexpr size_t kMostCopies = 1 << 20;  // of ops, in all functions that are made

using Names = std::unordered_map<uint32_t, uint32_t>;  // of values, in another function

// Ops that keep together. `place`: of the op that they are or replace; kNowhere: gone.
struct Item {
  size_t place = kNowhere;
  std::vector<RawOp> ops = {};
};

// Values that regions of the op make.
template <typename Fn>
void each_local(const RawOp& op, const Fn& fn) {
  for (const RawRegion& region : op.regions) {
    std::ranges::for_each(region.args, fn, &bytecode::RawArg::value);
    for (const RawOp& inner : region.ops) {
      std::ranges::for_each(inner.results, fn);
      each_local(inner, fn);
    }
  }
}

// The order of items that has each behind those which it reads, else by places; `end` is the last.
// Items in a circle, and those that read them, are missing.
std::vector<size_t> order_of(const std::vector<Item>& items, size_t end) {
  std::unordered_map<uint32_t, size_t> makers;  // by value
  for (size_t i = 0; i < items.size(); ++i) {
    for (const RawOp& op : items[i].ops) {
      std::ranges::for_each(op.results, [&](uint32_t value) { makers[value] = i; });
    }
  }
  std::vector<std::vector<size_t>> readers(items.size());
  std::vector<size_t> missing(items.size(), 0);
  for (size_t i = 0; i < items.size(); ++i) {
    std::set<size_t> from;
    for (const RawOp& op : items[i].ops) {
      each_use(op, [&](uint32_t value) {
        const auto it = makers.find(value);
        if (it != makers.end() && it->second != i) {
          from.insert(it->second);
        }
      });
    }
    missing[i] = from.size();
    std::ranges::for_each(from, [&](size_t maker) { readers[maker].push_back(i); });
  }
  using Ready = std::pair<size_t, size_t>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  const auto add_if_ready = [&](size_t i) {
    if (missing[i] == 0 && i != end && items[i].place != kNowhere) {
      ready.emplace(items[i].place, i);
    }
  };
  for (size_t i = 0; i < items.size(); ++i) {
    add_if_ready(i);
  }
  std::vector<size_t> order;
  while (!ready.empty()) {
    order.push_back(ready.top().second);
    ready.pop();
    for (const size_t reader : readers[order.back()]) {
      --missing[reader];
      add_if_ready(reader);
    }
  }
  order.push_back(end);
  return order;
}

// What becomes of one region.
class RegionOutliner {
 public:
  RegionOutliner(RawRegion& region, ManualProgram& known)
      : m_(known.module),
        build_(known.build),
        tables_(known.tables),
        ops_(region.ops),
        known_(known),
        found_(tables_, region, known.core_ops) {}

  void run() {
    const std::vector<ManualPart> parts = found_.parts();
    const std::vector<size_t> bare = found_.bare_entries();
    if (parts.empty() && bare.empty()) {
      return;
    }
    for (size_t i = 0; i < ops_.size(); ++i) {
      items_.push_back({i});
    }
    for (const size_t at : bare) {
      add_sharding(at);
    }
    for (const ManualPart& part : parts) {
      outline(part);
    }
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (items_[i].place != kNowhere) {
        items_[i].ops.push_back(std::move(ops_[i]));
      }
    }
    const std::vector<size_t> order = order_of(items_, ops_.size() - 1);
    check_all_placed(order);
    place(order);
  }

 private:
  // ---- shardings in front of entries

  void add_sharding(size_t entry) {
    RawOp& op = ops_[entry];
    const uint32_t whole = op.operands[0];
    Said said = said_of(whole);
    if (said.second == kNone) {
      if (m_.types[type_of(whole)].shape != m_.types[op.result_types.at(0)].shape) {
        known_.fail(
            op,
            "the program does not specify how the operand is sharded; mark its sharding first "
            "(xs.mark_sharding)");
      }
      said = {"mhlo.sharding", build_.text("{replicated}")};
    }
    items_[entry].ops.push_back(custom_call(op.loc, kGspmdConstraint, whole, said));
    op.operands[0] = items_[entry].ops.back().results[0];
  }

  Said said_of(uint32_t value) const {
    const auto argument = known_.arguments.find(value);
    if (argument != known_.arguments.end()) {
      return argument->second;
    }
    const size_t at = found_.maker(value);
    const bool one = at != kNowhere && ops_[at].results.size() == 1;
    return {"mhlo.sharding", one ? tables_.entry(ops_[at].dictionary, "mhlo.sharding") : kNone};
  }

  uint32_t type_of(uint32_t value) const { return known_.type_of(value); }
  uint32_t new_value(uint32_t type) { return known_.new_value(type); }

  RawOp custom_call(uint32_t loc, std::string_view target, uint32_t operand, const Said& sharding) {
    return known_.custom_call(loc, target, operand, sharding, type_of(operand));
  }

  // ---- a part as a function

  void outline(const ManualPart& part) {
    const uint32_t loc = ops_[part.first()].loc;
    Item item{part.place()};
    RawRegion body;
    RawOp call = manual_op(loc, "call_v1");
    Names inside;
    const auto add_argument = [&](uint32_t value, uint32_t entered) {
      inside[value] = new_value(type_of(entered));
      body.args.push_back({inside[value], type_of(entered), loc});
      call.operands.push_back(entered);
    };
    for (const size_t at : part.entries) {
      add_argument(ops_[at].results[0], ops_[at].results[0]);
    }
    // Where no entry says it, the part is manual along all axes.
    const std::string_view axes = part.entries.empty() ? "{manual}" : "{replicated}";
    for (const uint32_t value : taken_from_outside(part, body, inside)) {
      check_no_token(value, part);
      item.ops.push_back(custom_call(loc, kGspmdConstraint, value,
                                     {"mhlo.sharding", build_.text("{replicated}")}));
      item.ops.push_back(custom_call(loc, kGspmdEnter, item.ops.back().results[0],
                                     {"mhlo.sharding", build_.text(axes)}));
      add_argument(value, item.ops.back().results[0]);
    }
    const auto rename = [&](uint32_t& value) {
      const auto it = inside.find(value);
      value = it == inside.end() ? value : it->second;
    };
    for (const size_t at : part.ops) {
      each_use(ops_[at], rename);
      body.ops.push_back(std::move(ops_[at]));
      items_[at].place = kNowhere;
    }
    RawOp back = manual_op(loc, "return_v1");
    leave(part, call, back);
    each_use(back, rename);
    body.ops.push_back(std::move(back));
    call.properties = {{"callee", build_.text(add_function(call, std::move(body)))}};
    item.ops.push_back(std::move(call));
    items_.push_back(std::move(item));
  }

  void check_no_token(uint32_t value, const ManualPart& part) const {
    if (known_.is_token(value)) {
      known_.fail(
          ops_[part.first()],
          "a token of the program of all devices orders the work of one device; begin with a new "
          "token behind SPMDFullToShardShape");
    }
  }

  // Exits read the results of the call, each value once.
  void leave(const ManualPart& part, RawOp& call, RawOp& back) {
    Names results;
    for (const size_t at : part.exits) {
      const uint32_t value = ops_[at].operands[0];
      const auto [made, added] = results.emplace(value, 0);
      if (added) {
        made->second = new_value(type_of(value));
        call.results.push_back(made->second);
        call.result_types.push_back(type_of(value));
        back.operands.push_back(value);
      }
      ops_[at].operands[0] = made->second;
    }
  }

  // Copies into the body what can be computed there; gives the others, in the order of their uses.
  std::vector<uint32_t> taken_from_outside(const ManualPart& part, RawRegion& body, Names& inside) {
    std::unordered_set<uint32_t> own;
    for (const size_t at : part.ops) {
      own.insert(ops_[at].results.begin(), ops_[at].results.end());
      each_local(ops_[at], [&](uint32_t value) { own.insert(value); });
    }
    std::vector<uint32_t> others;
    std::set<size_t> copies;
    const auto take = [&](uint32_t value) {
      if (inside.contains(value) || !own.insert(value).second) {
        return;
      }
      const size_t at = found_.maker(value);
      if (at != kNowhere && found_.is_copyable(at)) {
        copies.insert(at);
      } else {
        others.push_back(value);
      }
    };
    for (const size_t at : part.ops) {
      each_use(ops_[at], take);
    }
    for (const size_t at : part.exits) {
      take(ops_[at].operands[0]);
    }
    copy_all(std::move(copies), body, inside);
    return others;
  }

  // The ops, and those that make their operands.
  void copy_all(std::set<size_t> places, RawRegion& body, Names& inside) {
    std::vector<size_t> next(places.begin(), places.end());
    while (!next.empty()) {
      const size_t at = next.back();
      next.pop_back();
      for (const uint32_t value : ops_[at].operands) {
        const size_t from = found_.maker(value);
        if (places.insert(from).second) {
          next.push_back(from);
        }
      }
    }
    known_.copies += places.size();
    if (known_.copies > kMostCopies) {
      known_.fail(ops_[*places.begin()],
                  "the manual parts of the program need more than " + std::to_string(kMostCopies) +
                      " copies of ops around them; pass the values through SPMDFullToShardShape");
    }
    for (const size_t at : places) {
      RawOp& copy = body.ops.emplace_back(ops_[at]);
      std::ranges::for_each(copy.operands, [&](uint32_t& value) { value = inside.at(value); });
      for (size_t r = 0; r < copy.results.size(); ++r) {
        copy.results[r] = inside[ops_[at].results[r]] = new_value(copy.result_types[r]);
      }
      copied_.insert(at);
    }
  }

  std::string_view add_function(const RawOp& call, RawRegion body) {
    std::vector<uint32_t> inputs;
    for (const auto& arg : body.args) {
      inputs.push_back(arg.type);
    }
    std::string name = "manual_part";
    for (size_t again = known_.made.size(); !known_.names.insert(name).second; ++again) {
      name = "manual_part." + std::to_string(again);
    }
    const std::string_view kept = build_.keep(std::move(name));
    RawOp f = manual_op(call.loc, "func_v1");
    f.regions.push_back(std::move(body));
    f.properties = {
        {"sym_name", build_.text(kept)},
        {"function_type", build_.of_type(build_.function_type(inputs, call.result_types))}};
    known_.made.push_back(std::move(f));
    return kept;
  }

  // ---- the region again

  void check_all_placed(const std::vector<size_t>& order) const {
    const std::set<size_t> placed(order.begin(), order.end());
    for (size_t i = ops_.size(); i < items_.size(); ++i) {
      if (!placed.contains(i)) {
        known_.fail(
            items_[i].ops.back(),
            "an array of one device (a token, or of a part that is manual along some axes only) "
            "passes by an array of all devices that depends on it: it is read on both sides of "
            "SPMDShardToFullShape and SPMDFullToShardShape; send it through both of them too");
      }
    }
  }

  // Without the ops of which only copies are read.
  void place(const std::vector<size_t>& order) {
    std::unordered_set<uint32_t> read;
    std::vector<RawOp> all;
    for (auto at = order.rbegin(); at != order.rend(); ++at) {
      std::vector<RawOp>& ops = items_[*at].ops;
      for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
        const auto is_read = [&](uint32_t value) { return read.contains(value); };
        if (!copied_.contains(*at) || std::ranges::any_of(op->results, is_read)) {
          each_use(*op, [&](uint32_t value) { read.insert(value); });
          all.push_back(std::move(*op));
        }
      }
    }
    std::ranges::reverse(all);
    ops_ = std::move(all);
  }

  RawModule& m_;
  bytecode::RawBuilder& build_;
  const Tables& tables_;
  std::vector<RawOp>& ops_;
  ManualProgram& known_;
  const ManualFinder found_;
  std::vector<Item> items_;  // the first are those of the ops
  std::set<size_t> copied_;  // places
};

bool enters_or_leaves(const RawOp& op, const Tables& tables) {
  const std::string_view target = custom_call_target(tables, op);
  return target == kGspmdEnter || target == kGspmdLeave;
}

bool has_manual_parts(const RawRegion& region, const Tables& tables) {
  return std::ranges::any_of(region.ops, [&](const RawOp& op) {
    return enters_or_leaves(op, tables) ||
           std::ranges::any_of(
               op.regions, [&](const RawRegion& inner) { return has_manual_parts(inner, tables); });
  });
}

class Outliner {
 public:
  Outliner(RawModule& module, int64_t partitions) : known_(module, partitions) {}

  void run() {
    for (RawRegion& top : known_.module.module.regions) {
      for (const RawOp& function : top.ops) {
        learn(function);
      }
      for (RawOp& function : top.ops) {
        for (RawRegion& body : function.regions) {
          region(body);
        }
      }
      std::ranges::move(known_.made, std::back_inserter(top.ops));
      known_.made.clear();
    }
  }

 private:
  void learn(const RawOp& op) {
    for (size_t r = 0; r < op.results.size(); ++r) {
      known_.types[op.results[r]] = op.result_types[r];
    }
    for (const RawRegion& region : op.regions) {
      for (const auto& arg : region.args) {
        known_.types[arg.value] = arg.type;
      }
      for (const RawOp& inner : region.ops) {
        learn(inner);
      }
    }
    for (const auto& [name, attr] : op.properties) {
      if (name == "sym_name") {
        known_.names.emplace(known_.tables.text(attr).value_or(""));
      } else if (name == "arg_attrs" && !op.regions.empty()) {
        arguments(op.regions[0], known_.tables.array(attr).value_or(std::vector<uint32_t>()));
      }
    }
  }

  void arguments(const RawRegion& body, const std::vector<uint32_t>& dictionaries) {
    for (size_t i = 0; i < std::min(body.args.size(), dictionaries.size()); ++i) {
      for (const std::string_view key : {"sdy.sharding", "mhlo.sharding"}) {
        const uint32_t sharding = known_.tables.entry(dictionaries[i], key);
        if (sharding != kNone) {
          known_.arguments.emplace(body.args[i].value, Said(key, sharding));
        }
      }
    }
  }

  void region(RawRegion& region) {
    for (RawOp& op : region.ops) {
      for (RawRegion& inner : op.regions) {
        this->region(inner);
      }
    }
    if (std::ranges::any_of(region.ops,
                            [&](const RawOp& op) { return enters_or_leaves(op, known_.tables); })) {
      cut_manual_circles(region, known_);
      RegionOutliner(region, known_).run();
    }
  }

  ManualProgram known_;
};

}  // namespace

void outline_manual_parts(RawModule& module, int64_t partitions) {
  const Tables tables(module);
  const auto own = tables.integer(tables.entry(module.module.dictionary, "mhlo.num_partitions"));
  if (std::ranges::any_of(module.module.regions, [&](const RawRegion& region) {
        return has_manual_parts(region, tables);
      })) {
    Outliner(module, partitions > 0 ? partitions : own.value_or(1)).run();
  }
}

}  // namespace tpu::compiler::frontend
