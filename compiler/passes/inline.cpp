// Pass `inline`: see inline.hpp. Callees are copied where they are called, then searched for calls
// again.
#include "passes/inline.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>

namespace tpu::compiler {
namespace {

// Bounds the expansion: call chains in damaged artifacts can double the program at each level.
constexpr size_t kMostInlined = 1'000'000;
constexpr size_t kMaxDepth = 64;

class Inliner {
 public:
  explicit Inliner(Module& module) : open_{module.main->name} {
    for (const auto& f : module.functions) {
      functions_.emplace(f->name, f.get());
    }
  }

  void region(Region& r) {
    std::vector<std::unique_ptr<Op>> old;
    old.swap(r.ops);
    for (auto& op : old) {
      op->operands = mapped(std::move(op->operands), replaced_);
      if (++count_ > kMostInlined) {
        fail(*op, "the program has more than " + std::to_string(kMostInlined) +
                      " ops when calls are expanded");
      }
      make_own_op(*op);
      if (op->kind == Kind::kCall || op->kind == Kind::kComposite) {
        expand(*op, r);
        // Uses further down are still resolved through the call's results.
        graveyard_.push_back(std::move(op));
        continue;
      }
      for (auto& inner : op->regions) {
        region(*inner);
      }
      r.ops.push_back(std::move(op));
    }
  }

 private:
  [[noreturn]] static void fail(const Op& op, const std::string& message) {
    throw Error(message, source_name(op.kind), op.loc);
  }

  // Composites that the core has an op for; others are what their decomposition says.
  static void make_own_op(Op& op) {
    if (op.kind == Kind::kComposite && op.as<CallAttrs>().composite_name == "chlo.erf" &&
        op.operands.size() == 1 && op.results.size() == 1 && is_float(op.type().elem) &&
        op.type() == op.operand_type(0)) {
      op.kind = Kind::kErf;
      op.attrs = NoAttrs{};
    }
  }

  void expand(const Op& call, Region& to) {
    const std::string& name = call.as<CallAttrs>().callee;
    if (std::find(open_.begin(), open_.end(), name) != open_.end()) {
      fail(call, "the function @" + name +
                     " calls itself; recursion is not supported: write a loop "
                     "(jax.lax.while_loop, jax.lax.fori_loop)");
    }
    const auto found = functions_.find(name);
    if (found == functions_.end()) {
      fail(call, "the function @" + name + " is missing");
    }
    if (open_.size() > kMaxDepth) {
      fail(call, "calls are nested more than " + std::to_string(kMaxDepth) + " deep");
    }
    const Function* callee = found->second;
    ValueMap map;
    for (size_t i = 0; i < call.operands.size(); ++i) {
      map[callee->body.args.at(i).get()] = call.operands[i];
    }
    Region body;
    for (const auto& op : callee->body.ops) {
      clone_op(*op, body, map);
    }
    std::map<const Loc*, LocRef> locs;  // one new location per old one
    walk(body, [&](Op& op) {
      LocRef& loc = locs[op.loc.get()];
      if (!loc) {
        loc = nested_loc(call.loc, op.loc);
      }
      op.loc = loc;
    });
    open_.push_back(name);
    region(body);
    open_.pop_back();
    const Op& ret = *body.ops.back();
    for (size_t i = 0; i < call.results.size(); ++i) {
      replaced_[call.result(i)] = ret.operands.at(i);
    }
    graveyard_.push_back(std::move(body.ops.back()));
    body.ops.pop_back();
    for (auto& op : body.ops) {
      op->parent = &to;
      to.ops.push_back(std::move(op));
    }
  }

  std::unordered_map<std::string, const Function*> functions_;
  std::vector<std::string> open_;  // functions around the op at hand
  ValueMap replaced_;
  std::vector<std::unique_ptr<Op>> graveyard_;
  size_t count_ = 0;
};

}  // namespace

void inline_calls(Module& module) {
  Inliner(module).region(module.main->body);
  module.functions.clear();
}

}  // namespace tpu::compiler
