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

class LayerCut {
 public:
  LayerCut(const RepeatedLayers& maker, const RepeatedLayers& reader, const LayerWalk& walk,
           const Uses& uses)
      : maker_(maker), reader_(reader), walk_(walk), uses_(uses) {}

  // False: nothing is computed again.
  bool find() {
    if (!find_targets()) {
      return false;
    }
    find_ends();
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
    for (const auto* targets : {&targets_, &ends_}) {
      for (const auto& [op, result] : *targets) {
        cut.to_sink(node_of(op, result) + 1);
      }
    }
    behind_ = cut.behind();
    again_ = needed(targets_);
    return !again_.empty() || !needed(ends_).empty();
  }

  void write(Region& main) {
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
      } else if (!maker_.holds(op.get()) && !reader_.holds(op.get())) {
        write_end(main, *op);
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
        if (!place) {
          same = false;
          continue;
        }
        const Result here{place->op, static_cast<size_t>(pick.values[j]->index)};
        same = same && place->layer == *layer && (!read || *read == here);
        read = here;
      }
      if (same && read) {
        targets_.push_back(*read);
      } else if (read) {
        otherwise_.push_back(*read);
      }
    }
    return !targets_.empty();
  }

  size_t node_of(size_t op, size_t result) const { return 2 * (first_result_[op] + result); }

  // Who reads a result of layers outside of both.
  enum class Outside : uint8_t { kNobody, kEnds, kAll };
  Outside outside(size_t i, size_t r) const {
    size_t layers = 0;
    for (size_t t = 0; t < maker_.layers(); ++t) {
      bool read = false;
      if (const auto users = uses_.find(maker_.op(t, i)->result(r)); users != uses_.end()) {
        for (const Op* op : users->second) {
          const bool others = !maker_.holds(op) && !reader_.holds(op);
          if (others && (op->kind == Kind::kReturn || op->parent != maker_.op(t, i)->parent)) {
            return Outside::kAll;
          }
          read = read || others;
        }
      }
      layers += read ? 1 : 0;
    }
    return layers == 0                 ? Outside::kNobody
           : layers == maker_.layers() ? Outside::kAll
                                       : Outside::kEnds;
  }

  // What layers at the ends of a pass read, which are no part of the reader: they may compute it
  // again, too.
  void find_ends() {
    for (size_t i = 0; i < maker_.ops(); ++i) {
      for (size_t r = 0; r < maker_.op(0, i)->results.size(); ++r) {
        if (outside(i, r) == Outside::kEnds &&
            std::ranges::find(otherwise_, Result{i, r}) == otherwise_.end()) {
          ends_.emplace_back(i, r);
        }
      }
    }
  }

  // Bytes that keeping it takes; none if it is kept anyway.
  int64_t bytes_of(size_t i, size_t r) const {
    return outside(i, r) == Outside::kAll ? 0 : maker_.op(0, i)->type(r).bytes();
  }

  bool is_again(size_t i) const { return behind_[node_of(i, 0)]; }

  // Ops of the maker that are computed again for these results, in order.
  std::vector<size_t> needed(const std::vector<Result>& results) const {
    std::vector<bool> wanted(maker_.ops(), false);
    for (const auto& [op, result] : results) {
      wanted[op] = is_again(op);
    }
    std::vector<size_t> ops;
    for (size_t i = maker_.ops(); i-- > 0;) {
      if (!wanted[i]) {
        continue;
      }
      ops.push_back(i);
      for (const RepeatedLayers::Source& source : maker_.sources()[i]) {
        if (source.kind == RepeatedLayers::Source::Kind::kInside) {
          wanted[source.op] = is_again(source.op);
        }
      }
    }
    std::ranges::reverse(ops);
    return ops;
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
        } else if (source.kind == Kind::kPick) {  // read once more
          cut.from_source(node, maker_.picks()[source.index].values[0]->type.bytes());
        }
      }
    }
  }

  // An op outside of both reads values that are computed again in front of it.
  void write_end(Region& main, Op& op) {
    for (Value*& v : op.operands) {
      const auto place = maker_.place_of(v);
      if (!place || !is_again(place->op) ||
          std::ranges::find(ends_, Result{place->op, static_cast<size_t>(v->index)}) ==
              ends_.end()) {
        continue;
      }
      ValueMap& map = at_ends_[place->layer];
      for (const size_t i : needed({{place->op, static_cast<size_t>(v->index)}})) {
        const Op& made = *maker_.op(place->layer, i);
        if (!map.contains(made.result())) {
          clone_op(made, main, map);
        }
      }
      v = map.at(v);
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
  const LayerWalk walk_;
  const Uses& uses_;
  std::vector<Result> targets_;                   // that the reader reads
  std::vector<Result> otherwise_;                 // that it reads in another order
  std::vector<Result> ends_;                      // that others read, of some layers
  std::vector<bool> behind_;                      // nodes
  std::vector<size_t> first_result_;              // number of it, by op
  std::vector<size_t> again_;                     // ops of the maker that the reader computes again
  std::unordered_map<size_t, ValueMap> at_ends_;  // what is computed again for others, by layer
};

}  // namespace

std::vector<LayerWalk> walks_between(const RepeatedLayers& maker, const RepeatedLayers& reader) {
  std::vector<LayerWalk> walks;
  for (const RepeatedLayers::Pick& pick : reader.picks()) {
    for (size_t j = 0; j + 1 < pick.values.size(); ++j) {
      const auto here = maker.place_of(pick.values[j]), next = maker.place_of(pick.values[j + 1]);
      if (!here || !next || here->op != next->op) {
        continue;
      }
      const auto t = static_cast<int64_t>(here->layer);
      const int64_t step = static_cast<int64_t>(next->layer) - t;
      const LayerWalk walk{t - static_cast<int64_t>(j) * step, step};
      if ((step == 1 || step == -1) && std::ranges::find(walks, walk) == walks.end()) {
        walks.push_back(walk);
      }
      break;
    }
  }
  return walks;
}

bool recompute_in_reader(Region& main, const RepeatedLayers& maker, const RepeatedLayers& reader,
                         const LayerWalk& walk, const Uses& uses) {
  LayerCut cut(maker, reader, walk, uses);
  if (maker.ops() > kLargestLayer || !cut.find()) {
    return false;
  }
  cut.write(main);
  return true;
}

namespace {

class Widener {
 public:
  Widener(Region& main, const RepeatedLayers& maker) : main_(main), maker_(maker) {}

  // The same value outside; itself if it is not widened.
  Value* outside(Value* v) {
    const auto place = maker_.place_of(v);
    if (!place || !widens(*v->def)) {
      return v;
    }
    if (const auto known = map_.find(v); known != map_.end()) {
      return known->second;
    }
    Op& op = *v->def;
    Value* source = outside(op.operands[0]);
    Value* made = main_.append(op.kind, {source}, {v->type}, op.attrs, op.loc)->result();
    return map_[v] = made;
  }

 private:
  bool widens(const Op& op) const {
    return (op.kind == Kind::kConvert || op.kind == Kind::kBroadcastInDim) &&
           op.type().bytes() > op.operand_type(0).bytes() &&
           maker_.place_of(op.operands[0]).has_value();
  }

  Region& main_;
  const RepeatedLayers& maker_;
  ValueMap map_;
};

}  // namespace

bool widen_outside(Region& main, const RepeatedLayers& maker,
                   const std::unordered_set<const Op*>& runs) {
  std::vector<std::unique_ptr<Op>> all;
  all.swap(main.ops);
  Widener widener(main, maker);
  bool any = false;
  for (auto& op : all) {
    if (!runs.contains(op.get())) {
      for (Value*& v : op->operands) {
        Value* outside = widener.outside(v);
        any = any || outside != v;
        v = outside;
      }
    }
    main.ops.push_back(std::move(op));
  }
  return any;
}

}  // namespace tpu::compiler
