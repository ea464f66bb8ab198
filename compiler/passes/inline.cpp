// Pass `inline`: see inline.hpp. Callees are copied where they are called, then searched for calls
// again.
#include "passes/inline.hpp"

#include <map>

namespace tpu::compiler {
namespace {

// Bounds the expansion: call chains in damaged artifacts can double the program at each level.
constexpr size_t kMaxOps = 1'000'000;
constexpr int kMaxDepth = 64;

class Inliner {
 public:
  explicit Inliner(Module& module) : module_(module) {}

  void region(Region& r, int depth) {
    std::vector<std::unique_ptr<Op>> old;
    old.swap(r.ops);
    for (auto& op : old) {
      op->operands = mapped(op->operands, replaced_);
      if (++count_ > kMaxOps) {
        fail(*op, "the program has more than " + std::to_string(kMaxOps) +
                      " ops when calls are expanded");
      }
      make_own_op(*op);
      if (op->kind == Kind::kCall || op->kind == Kind::kComposite) {
        expand(*op, r, depth);
        // Uses further down are still resolved through the call's results.
        graveyard_.push_back(std::move(op));
        continue;
      }
      for (auto& inner : op->regions) {
        region(*inner, depth);
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

  void expand(const Op& call, Region& to, int depth) {
    const std::string& name = call.as<CallAttrs>().callee;
    const Function* callee = module_.find(name);
    if (callee == nullptr) {
      fail(call, "the function @" + name + " is missing");
    }
    if (depth > kMaxDepth) {
      fail(call, "calls are nested too deeply; recursion is not supported");
    }
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
    region(body, depth + 1);
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

  Module& module_;
  ValueMap replaced_;
  std::vector<std::unique_ptr<Op>> graveyard_;
  size_t count_ = 0;
};

}  // namespace

void inline_calls(Module& module) {
  Inliner(module).region(module.main->body, 0);
  module.functions.clear();
}

}  // namespace tpu::compiler
