#include "passes/layer_cut.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/op_traits.hpp"
#include "passes/least_cut.hpp"

namespace tpu::compiler {

namespace {

constexpr size_t kLargestLayer = 10'000;  // ops
// Integers of more elements are random bits, which cost more than to keep what is made of them.
constexpr int64_t kMostIntegers = 4096;

// Views: never kept, since what they view can be.
bool is_view(const Op& op) {
  return op.kind == Kind::kBroadcastInDim || op.kind == Kind::kReshape ||
         op.kind == Kind::kTranspose || op.kind == Kind::kSlice;
}

// Computed again in the time of a load: no products, sums or transcendentals.
bool is_cheap(const Op& op) {
  if (!op.regions.empty() || op.results.size() != 1) {
    return false;
  }
  if (!is_view(op) && !(is_elementwise(op.kind) && has_trait(op.kind, trait::kCheap)) &&
      op.kind != Kind::kSelect && op.kind != Kind::kConvert) {
    return false;
  }
  const Type& type = op.type();
  return is_view(op) || is_float(type.elem) || type.elem == Elem::kI1 ||
         type.count() <= kMostIntegers;
}

// Layer j of the reader reads of layer `first` + j * `step` of the maker.
struct Walk {
  int64_t first = 0, step = 0;
};

class LayerCut {
 public:
  LayerCut(const RepeatedLayers& maker, const RepeatedLayers& reader, const Uses& uses)
      : maker_(maker), reader_(reader), uses_(uses) {}

  // False: nothing is computed again.
  bool find() {
    find_walk();
    if (walk_.step == 0 || !find_targets()) {
      return false;
    }
    first_result_.resize(maker_.ops() + 1);
    for (size_t i = 0; i < maker_.ops(); ++i) {
      first_result_[i + 1] = first_result_[i] + maker_.op(0, i)->results.size();
    }
    LeastCut cut(2 * (first_result_.back() + maker_.carried().size()));
    for (size_t i = 0; i < maker_.ops(); ++i) {
      add_op(cut, i);
    }
    for (size_t c = 0; c < maker_.carried().size(); ++c) {
      const size_t node = 2 * (first_result_.back() + c);
      cut.from_source(node);
      cut.add(node, node + 1, maker_.carried()[c].first->type.bytes());
    }
    for (const auto& [op, result] : targets_) {
      cut.to_sink(node_of(op, result) + 1);
    }
    const std::vector<bool> behind = cut.behind();
    for (size_t i = 0; i < maker_.ops(); ++i) {
      if (behind[node_of(i, 0)]) {
        again_.push_back(i);
      }
    }
    return !again_.empty();
  }

  void write(Region& main) const {
    std::unordered_map<const Op*, size_t> begins;  // layers of the reader
    for (size_t j = 0; j < reader_.layers(); ++j) {
      if (maker_layer(j)) {
        begins[reader_.op(j, 0)] = j;
      }
    }
    std::vector<std::unique_ptr<Op>> all;
    all.swap(main.ops);
    for (auto& op : all) {
      if (const auto begin = begins.find(op.get()); begin != begins.end()) {
        write_layer(main, begin->second);
      }
      main.ops.push_back(std::move(op));
    }
  }

 private:
  using Result = std::pair<size_t, size_t>;  // op, result

  std::optional<size_t> maker_layer(size_t j) const {
    const int64_t t = walk_.first + static_cast<int64_t>(j) * walk_.step;
    return t >= 0 && t < static_cast<int64_t>(maker_.layers())
               ? std::optional(static_cast<size_t>(t))
               : std::nullopt;
  }

  void find_walk() {
    for (const RepeatedLayers::Pick& pick : reader_.picks()) {
      for (size_t j = 0; j + 1 < pick.values.size(); ++j) {
        const auto here = maker_.place_of(pick.values[j]),
                   next = maker_.place_of(pick.values[j + 1]);
        if (here && next && here->op == next->op) {
          const auto t = static_cast<int64_t>(here->layer);
          const int64_t step = static_cast<int64_t>(next->layer) - t;
          if (step == 1 || step == -1) {
            walk_ = {t - static_cast<int64_t>(j) * step, step};
            return;
          }
        }
      }
    }
  }

  // What the reader reads in that order: the same result of each layer.
  bool find_targets() {
    for (const RepeatedLayers::Pick& pick : reader_.picks()) {
      std::optional<Result> read;
      bool same = true;
      for (size_t j = 0; j < pick.values.size(); ++j) {
        const auto layer = maker_layer(j);
        if (!layer) {
          continue;
        }
        const auto place = maker_.place_of(pick.values[j]);
        const Result here{place ? place->op : 0, static_cast<size_t>(pick.values[j]->index)};
        same = same && place && place->layer == *layer && (!read || *read == here);
        read = here;
      }
      if (same && read) {
        targets_.push_back(*read);
      }
    }
    return !targets_.empty();
  }

  size_t node_of(size_t op, size_t result) const { return 2 * (first_result_[op] + result); }

  // Bytes that keeping it takes; none if others keep it.
  int64_t bytes_of(size_t i, size_t r) const {
    const Value* v = maker_.op(maker_.layers() / 2, i)->result(r);
    const auto users = uses_.find(v);
    const bool kept = users != uses_.end() && std::ranges::any_of(users->second, [&](const Op* op) {
                        return !maker_.holds(op) && !reader_.holds(op);
                      });
    return kept ? 0 : v->type.bytes();
  }

  void add_op(LeastCut& cut, size_t i) const {
    using Kind = RepeatedLayers::Source::Kind;
    const Op& op = *maker_.op(0, i);
    for (size_t r = 0; r < op.results.size(); ++r) {
      const size_t node = node_of(i, r);
      cut.add(node, node + 1, is_view(op) ? LeastCut::kAll : bytes_of(i, r));
      if (!is_cheap(op)) {
        cut.from_source(node);
        continue;
      }
      for (const RepeatedLayers::Source& source : maker_.sources()[i]) {
        if (source.kind == Kind::kInside) {
          cut.add(node_of(source.op, source.result) + 1, node, LeastCut::kAll);
        } else if (source.kind == Kind::kCarried) {
          cut.add(2 * (first_result_.back() + source.index) + 1, node, LeastCut::kAll);
        }
      }
    }
  }

  void write_layer(Region& main, size_t j) const {
    ValueMap map;
    for (const size_t i : again_) {
      clone_op(*maker_.op(*maker_layer(j), i), main, map);
    }
    for (size_t i = 0; i < reader_.ops(); ++i) {
      Op& op = *reader_.op(j, i);
      op.operands = mapped(std::move(op.operands), map);
    }
  }

  const RepeatedLayers& maker_;
  const RepeatedLayers& reader_;
  const Uses& uses_;
  Walk walk_;
  std::vector<Result> targets_;
  std::vector<size_t> first_result_;  // number of it, by op
  std::vector<size_t> again_;         // ops of the maker that the reader computes again
};

}  // namespace

bool recompute_in_reader(Region& main, const RepeatedLayers& maker, const RepeatedLayers& reader,
                         const Uses& uses) {
  LayerCut cut(maker, reader, uses);
  if (maker.ops() > kLargestLayer || !cut.find()) {
    return false;
  }
  cut.write(main);
  return true;
}

}  // namespace tpu::compiler
