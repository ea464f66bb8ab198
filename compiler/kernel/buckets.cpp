// Buckets: groups of equal key that do not depend on each other, cut by readiness.
#include "kernel/buckets.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "ir/control.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kPieceBytes = 512 * 1024;  // enough for a link's bandwidth
constexpr int64_t kPieceGrain = 4096;        // eight parts of whole granules

std::string bucket_key(const Op& op) {
  std::string key;
  for (const auto& group : op.as<CollectiveAttrs>().groups) {
    key += '|';
    for (const int64_t g : group) {
      key += std::to_string(g) + ',';
    }
  }
  const auto reducer = simple_reducer(*op.regions.at(0));
  if (!reducer) {
    throw Error(
        "expected a reduction body of one operation: add, multiply, maximum, minimum, and, or",
        source_name(op.kind), op.loc);
  }
  return key + std::string(kind_name(*reducer)) + std::string(elem_name(op.operand_type(0).elem));
}

class Orderer {
 public:
  Orderer(const Region& body, int64_t piece, int64_t bucket_bytes)
      : body_(body), piece_(piece), bucket_bytes_(bucket_bytes) {}

  BucketOrder run() {
    find_inputs();
    make_groups();
    for (auto& [key, ops] : groups_) {
      cut(ops);
    }
    sequence();
    return std::move(out_);
  }

 private:
  // What is known of an op of the body while ops are put in order.
  struct Node {
    size_t position = 0;
    std::vector<Node*> inputs, users;  // one entry a use
    size_t missing = 0;                // inputs that are not done
    int64_t ready = -1;                // position of the last input
    std::vector<size_t> buckets;       // of an all_reduce
    size_t parts = 0;                  // of them, those that are still to come
  };

  // Ops with effects keep their order: each counts as an input of the next.
  void find_inputs() {
    nodes_.reserve(body_.ops.size());
    Node* acted = nullptr;
    for (const auto& op : body_.ops) {
      Node& node = nodes_[op.get()];
      node.position = nodes_.size() - 1;
      for (const Value* v : dependencies(*op)) {
        const auto it = v->def == nullptr ? nodes_.end() : nodes_.find(v->def);
        if (it != nodes_.end()) {
          node.inputs.push_back(&it->second);
          it->second.users.push_back(&node);
          node.ready = std::max(node.ready, static_cast<int64_t>(it->second.position));
        }
      }
      if (op->kind != Kind::kReturn && has_side_effect(*op)) {
        if (acted != nullptr) {
          node.inputs.push_back(acted);
          acted->users.push_back(&node);
          node.ready = std::max(node.ready, static_cast<int64_t>(acted->position));
        }
        acted = &node;
      }
      node.missing = node.inputs.size();
    }
  }

  // Groups by number of collectives in front, then by what they do.
  void make_groups() {
    std::vector<int> level(nodes_.size());
    for (const auto& op : body_.ops) {
      const Node& node = nodes_.at(op.get());
      for (const Node* in : node.inputs) {
        const bool exchanged = body_.ops[in->position]->kind == Kind::kAllReduce;
        level[node.position] =
            std::max(level[node.position], level[in->position] + (exchanged ? 1 : 0));
      }
      if (op->kind == Kind::kAllReduce) {
        groups_[std::to_string(level[node.position]) + bucket_key(*op)].push_back(op.get());
      }
    }
  }

  void cut(std::vector<const Op*>& ops) {
    std::vector<const Op*> by_time = ops;
    std::stable_sort(by_time.begin(), by_time.end(), [&](const Op* a, const Op* b) {
      return nodes_.at(a).ready < nodes_.at(b).ready;
    });
    Bucket rests, open{{}, true};
    int64_t bytes = 0;
    for (const Op* op : ops) {
      if (rest_of(*op)) {
        rests.ops.push_back(op);
      }
    }
    for (const Op* op : by_time) {
      int64_t more = 0;
      for (const Value* v : op->operands) {
        more += streamed_bytes(v->type, piece_);
      }
      if (more == 0) {
        continue;
      }
      open.ops.push_back(op);
      bytes += more;
      if (bytes >= bucket_bytes_) {
        add(std::move(open));
        open = Bucket{{}, true};
        bytes = 0;
      }
    }
    if (!open.ops.empty()) {
      add(std::move(open));
    }
    if (!rests.ops.empty()) {
      add(std::move(rests));
    }
  }

  bool rest_of(const Op& op) const {
    return std::any_of(op.operands.begin(), op.operands.end(), [&](const Value* v) {
      return v->type.bytes() == 0 || streamed_bytes(v->type, piece_) < v->type.bytes();
    });
  }

  void add(Bucket bucket) {
    for (const Op* op : bucket.ops) {
      nodes_.at(op).buckets.push_back(out_.buckets.size());
    }
    missing_.push_back(bucket.ops.size());
    out_.buckets.push_back(std::move(bucket));
  }

  void finish(const Op* op) {
    for (Node* user : nodes_.at(op).users) {
      const bool ready = --user->missing == 0;
      arrived_ += ready && body_.ops[user->position]->kind == Kind::kAllReduce ? 1 : 0;
    }
  }

  // Counts the op in its buckets and places those that are complete.
  void arrive(const Op* op) {
    for (const size_t b : nodes_.at(op).buckets) {
      if (--missing_[b] == 0) {
        out_.steps.push_back({nullptr, static_cast<int>(b)});
        for (const Op* member : out_.buckets[b].ops) {
          if (--nodes_.at(member).parts == 0) {
            finish(member);
          }
        }
      }
    }
  }

  void arrive_all() {
    for (auto it = waiting_.begin(); it != waiting_.end() && arrived_ > 0;) {
      if (nodes_.at(*it).missing == 0) {
        const Op* op = *it;
        it = waiting_.erase(it);
        --arrived_;
        arrive(op);
      } else {
        ++it;
      }
    }
  }

  void sequence() {
    std::vector<const Op*> pending;
    for (const auto& op : body_.ops) {
      Node& node = nodes_.at(op.get());
      if (op->kind == Kind::kAllReduce) {
        node.parts = node.buckets.size();
        arrived_ += node.missing == 0 ? 1 : 0;
        waiting_.push_back(op.get());
      } else {
        pending.push_back(op.get());
      }
    }
    arrive_all();
    while (!pending.empty()) {
      std::vector<const Op*> later;
      for (const Op* op : pending) {
        if (nodes_.at(op).missing > 0) {
          later.push_back(op);
          continue;
        }
        finish(op);
        if (op->kind != Kind::kReturn) {
          out_.steps.push_back({op, -1});
        }
        arrive_all();
      }
      if (later.size() == pending.size()) {
        throw Error("the graph is not in an order of dependence");
      }
      pending = std::move(later);
    }
  }

  const Region& body_;
  const int64_t piece_, bucket_bytes_;
  BucketOrder out_;
  std::map<std::string, std::vector<const Op*>> groups_;
  std::unordered_map<const Op*, Node> nodes_;  // looked up only; nodes stay where they are
  std::vector<size_t> missing_;                // ops of a bucket that are not ready
  std::vector<const Op*> waiting_;             // all_reduces
  size_t arrived_ = 0;                         // of them, those whose inputs are done
};

// Moves operands and results of an all_reduce into another one.
void join(Op& into, Op& from) {
  into.operands.insert(into.operands.end(), from.operands.begin(), from.operands.end());
  for (auto& result : from.results) {
    result->def = &into;
    result->index = static_cast<int>(into.results.size());
    into.results.push_back(std::move(result));
  }
}

// The op of a step, or those of its bucket.
std::span<const Op* const> ops_of(const BucketOrder& order, size_t step) {
  const OrderStep& at = order.steps[step];
  return at.op != nullptr ? std::span(&at.op, 1)
                          : std::span(order.buckets[static_cast<size_t>(at.bucket)].ops);
}

bool has_simple_sums(const Region& body) {
  return std::all_of(body.ops.begin(), body.ops.end(), [](const auto& op) {
    return op->kind != Kind::kAllReduce || simple_reducer(*op->regions.at(0)).has_value();
  });
}

}  // namespace

int64_t exchange_piece_bytes(const spec::BoardParams& board) {
  const int64_t share = board.core.vmem_kib * 1024 / 32 / kPieceGrain * kPieceGrain;
  return std::clamp(share, kPieceGrain, kPieceBytes);
}

BucketOrder order_buckets(const Region& body, int64_t piece, int64_t bucket_bytes) {
  return Orderer(body, piece, bucket_bytes).run();
}

void join_buckets(Region& body, int64_t piece) {
  for (const auto& op : body.ops) {
    for (const auto& inner : op->regions) {
      join_buckets(*inner, piece);
    }
  }
  if (!has_simple_sums(body)) {
    return;  // there is no order of what no exchange can do
  }
  const BucketOrder order = order_buckets(body, piece);
  if (order.buckets.empty()) {
    return;
  }
  std::unordered_map<const Op*, size_t> complete;  // the last step of an op
  for (size_t s = 0; s < order.steps.size(); ++s) {
    for (const Op* op : ops_of(order, s)) {
      complete[op] = s;
    }
  }
  std::unordered_map<const Op*, std::unique_ptr<Op>> ops;
  const Op* const end = body.terminator();
  for (auto& op : std::exchange(body.ops, {})) {
    const Op* key = op.get();
    ops[key] = std::move(op);
  }
  for (size_t s = 0; s < order.steps.size(); ++s) {
    Op* joined = nullptr;
    for (const Op* op : ops_of(order, s)) {
      if (complete.at(op) != s) {
        continue;
      }
      if (joined != nullptr) {
        join(*joined, *ops.at(op));
      } else {
        joined = body.ops.emplace_back(std::move(ops.at(op))).get();
      }
    }
  }
  body.ops.push_back(std::move(ops.at(end)));
}

}  // namespace tpu::compiler
