// Buckets: groups of equal key that do not depend on each other, cut by readiness.
#include "kernel/buckets.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "ir/control.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kBucketBytes = 4 * 1024 * 1024;  // enough to hide the latencies of its exchange
constexpr int64_t kPieceBytes = 512 * 1024;        // enough for a link's bandwidth
constexpr int64_t kPieceGrain = 4096;              // eight parts of whole granules

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
    throw Error("the reduction body must be one add, multiply, maximum, minimum, and or or",
                source_name(op.kind), op.loc);
  }
  return key + std::string(kind_name(*reducer)) + std::string(elem_name(op.operand_type(0).elem));
}

class Orderer {
 public:
  Orderer(const Region& body, int64_t piece) : body_(body), piece_(piece) {}

  BucketOrder run() {
    make_groups();
    for (auto& [key, ops] : groups_) {
      cut(ops);
    }
    sequence();
    return std::move(out_);
  }

 private:
  // Groups by number of collectives in front, then by what they do.
  void make_groups() {
    std::map<const Op*, int> level;
    int64_t position = 0;
    for (const auto& op : body_.ops) {
      int l = 0;
      int64_t ready = -1;
      for (const Value* v : inputs_[op.get()] = dependencies(*op)) {
        if (v->def != nullptr && level.contains(v->def)) {
          l = std::max(l, level.at(v->def) + (v->def->kind == Kind::kAllReduce ? 1 : 0));
          ready = std::max(ready, position_.at(v->def));
        }
      }
      level[op.get()] = l;
      position_[op.get()] = position++;
      if (op->kind == Kind::kAllReduce) {
        ready_[op.get()] = ready;
        groups_[std::to_string(l) + bucket_key(*op)].push_back(op.get());
      }
    }
  }

  void cut(std::vector<const Op*>& ops) {
    std::vector<const Op*> by_time = ops;
    std::stable_sort(by_time.begin(), by_time.end(),
                     [&](const Op* a, const Op* b) { return ready_.at(a) < ready_.at(b); });
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
      if (bytes >= kBucketBytes) {
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
      buckets_of_[op].push_back(out_.buckets.size());
    }
    missing_.push_back(bucket.ops.size());
    out_.buckets.push_back(std::move(bucket));
  }

  bool ready(const Op* op) const {
    const std::vector<Value*>& in = inputs_.at(op);
    return std::all_of(in.begin(), in.end(), [&](const Value* v) {
      return v->def == nullptr || !position_.contains(v->def) || done_.contains(v->def);
    });
  }

  // Counts the op in its buckets and places those that are complete.
  void arrive(const Op* op) {
    for (const size_t b : buckets_of_.at(op)) {
      if (--missing_[b] == 0) {
        out_.steps.push_back({nullptr, static_cast<int>(b)});
        for (const Op* member : out_.buckets[b].ops) {
          if (--parts_.at(member) == 0) {
            done_.insert(member);
          }
        }
      }
    }
  }

  void arrive_all() {
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (ready(*it)) {
        const Op* op = *it;
        it = waiting_.erase(it);
        arrive(op);
      } else {
        ++it;
      }
    }
  }

  void sequence() {
    std::vector<const Op*> pending;
    for (const auto& op : body_.ops) {
      if (op->kind == Kind::kAllReduce) {
        parts_[op.get()] = buckets_of_.at(op.get()).size();
        waiting_.push_back(op.get());
      } else {
        pending.push_back(op.get());
      }
    }
    arrive_all();
    while (!pending.empty()) {
      std::vector<const Op*> later;
      for (const Op* op : pending) {
        if (!ready(op)) {
          later.push_back(op);
          continue;
        }
        done_.insert(op);
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
  const int64_t piece_;
  BucketOrder out_;
  std::map<std::string, std::vector<const Op*>> groups_;
  // For look-up only: pointers have no stable order.
  std::map<const Op*, int64_t> position_, ready_;
  std::map<const Op*, std::vector<Value*>> inputs_;
  std::map<const Op*, std::vector<size_t>> buckets_of_;
  std::map<const Op*, size_t> parts_;  // buckets of an op that are still to come
  std::set<const Op*> done_;
  std::vector<size_t> missing_;  // ops of a bucket that are not ready
  std::vector<const Op*> waiting_;
};

}  // namespace

int64_t exchange_piece_bytes(const spec::BoardParams& board) {
  const int64_t share = board.core.vmem_kib * 1024 / 32 / kPieceGrain * kPieceGrain;
  return std::clamp(share, kPieceGrain, kPieceBytes);
}

BucketOrder order_buckets(const Region& body, int64_t piece) { return Orderer(body, piece).run(); }

}  // namespace tpu::compiler
