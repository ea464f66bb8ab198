// See barrier_order.hpp.
#include "passes/barrier_order.hpp"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "ir/control.hpp"
#include "ir/op_traits.hpp"

namespace tpu::compiler {
namespace {

class BarrierOrder {
 public:
  explicit BarrierOrder(Region& body) : body_(body) {
    for (const auto& op : body_.ops) {
      Node& node = nodes_[op.get()];
      for (const Value* v : dependencies(*op)) {
        const auto made = v->def == nullptr ? nodes_.end() : nodes_.find(v->def);
        if (made != nodes_.end()) {
          node.inputs.push_back(&made->second);
          node.behind = node.behind || made->second.behind;
        }
      }
      node.behind = node.behind || op->kind == Kind::kOptimizationBarrier;
    }
  }

  bool run() {
    bool any = false;
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      if (body_.ops[i]->kind == Kind::kOptimizationBarrier) {
        const size_t moved = finish_before(i);
        any = any || moved > 0;
        i += moved;
      }
    }
    return any;
  }

 private:
  struct Node {
    std::vector<Node*> inputs;
    bool behind = false;  // any barrier
    bool later = false;   // of the barrier under treatment: depends on it, or has effects
    bool moves = false;
  };

  // Moves what need not wait for the barrier at place `at` in front of it. Their number.
  size_t finish_before(size_t at) {
    const auto begin = body_.ops.begin() + static_cast<ptrdiff_t>(at);
    for (auto op = begin; op != body_.ops.end(); ++op) {
      Node& node = nodes_.at(op->get());
      node.moves = false;
      node.later = op == begin || has_side_effect(**op) ||
                   std::ranges::any_of(node.inputs, [](const Node* in) { return in->later; });
    }
    for (auto op = body_.ops.end(); op != begin;) {
      Node& node = nodes_.at((--op)->get());
      const bool reads_again =
          node.behind && !node.later && traits_of((*op)->kind).group == Group::kContraction;
      node.moves = node.moves || reads_again;
      if (node.moves) {
        std::ranges::for_each(node.inputs, [](Node* in) { in->moves = true; });
      }
    }
    std::vector<std::unique_ptr<Op>> first, rest;
    for (auto op = begin; op != body_.ops.end(); ++op) {
      (nodes_.at(op->get()).moves ? first : rest).push_back(std::move(*op));
    }
    std::ranges::move(rest, std::ranges::move(first, begin).out);
    for (auto& [op, node] : nodes_) {
      node.later = false;
    }
    return first.size();
  }

  Region& body_;
  std::unordered_map<const Op*, Node> nodes_;  // references stay
};

}  // namespace

bool order_behind_barriers(Module& module) {
  Region& body = module.main->body;
  const auto barriers = std::ranges::count_if(
      body.ops, [](const auto& op) { return op->kind == Kind::kOptimizationBarrier; });
  return barriers > 1 && BarrierOrder(body).run();
}

}  // namespace tpu::compiler
