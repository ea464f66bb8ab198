// See roll.hpp.
#include "passes/roll.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/control.hpp"
#include "passes/layer_cut.hpp"
#include "passes/layer_tails.hpp"
#include "passes/repeated_layers.hpp"
#include "passes/repeats.hpp"
#include "passes/rewriter.hpp"

namespace tpu::compiler {

namespace {

// Ops of a layer at least: shorter repeats are loops that a program has written out.
constexpr size_t kShortestLayer = 4;
// Of constants that are stacked here; larger ones are stacked on the core.
constexpr int64_t kMostConstantBytes = 1 << 16;

const Type kCounter{Elem::kI32, {}};

Type stack_type(const Type& type, size_t layers) {
  Type stack = type;
  stack.dims.insert(stack.dims.begin(), static_cast<int64_t>(layers));
  return stack;
}

bool is_product(const Op& op) {
  return op.kind == Kind::kDotGeneral || op.kind == Kind::kConvolution;
}

// Ops of equal text do the same with operands of equal types. Those that act on the outside, and
// those whose regions read values from outside, are like no other.
std::string signature(const Op& op, size_t place) {
  if (has_side_effect(op) || op.kind == Kind::kReturn ||
      (!op.regions.empty() && !free_values(op).empty())) {
    return "only " + std::to_string(place);
  }
  return layer_text(op);
}

// Writes the loop. Carried: the counter, what the next layer reads, results of the last layer, and
// stacks of results.
class LoopWriter {
 public:
  LoopWriter(const RepeatedLayers& layers, Region& to, Stacks& stacks)
      : layers_(layers), to_(to), stacks_(stacks) {
    rw_.place(to, *layers.op(0, 0));
  }

  // What stands for results of the layers behind the loop.
  ValueMap write(const Uses& uses) {
    for (const RepeatedLayers::Pick& pick : layers_.picks()) {
      picked_.push_back(pick.stack != nullptr ? pick.stack : stack(pick.values));
    }
    std::vector<Value*> initial = {rw_.constant(make_splat_int(kCounter, 0))};
    for (const RepeatedLayers::Carried& c : layers_.carried()) {
      initial.push_back(c.first);
    }
    for (const RepeatedLayers::Read& read : layers_.reads()) {
      const Type& type = value(0, read)->type;
      initial.push_back(zeros(read.last_only ? type : stack_type(type, layers_.layers())));
    }
    std::vector<Type> types;
    for (const Value* v : initial) {
      types.push_back(v->type);
    }
    loop_ = to_.append(Kind::kWhile, initial, types, NoAttrs{}, layers_.op(0, 0)->loc);
    for (int r = 0; r < 2; ++r) {
      Region* region = loop_->add_region();
      for (const Type& type : types) {
        region->add_arg(type);
      }
    }
    write_condition();
    write_body();
    rw_.place(to_, *layers_.op(0, 0));
    return results(uses);
  }

 private:
  Value* value(size_t layer, const RepeatedLayers::Read& read) const {
    return layers_.op(layer, read.op)->result(read.result);
  }

  Value* zeros(const Type& type) {
    return rw_.constant(is_float(type.elem) ? make_splat(type, 0) : make_splat_int(type, 0));
  }

  // An array of the values, which are known there as its layers from now on.
  Value* stack(const std::vector<Value*>& values) {
    const Type type = stack_type(values[0]->type, values.size());
    Value* made = constant_stack(values, type);
    if (made == nullptr) {
      std::vector<Value*> parts;
      for (Value* v : values) {
        parts.push_back(rw_.make(Kind::kReshape, {v}, stack_type(v->type, 1)));
      }
      made = rw_.make(Kind::kConcatenate, parts, type, DimAttrs{0});
    }
    for (size_t t = 0; t < values.size(); ++t) {
      stacks_.try_emplace(values[t], Stacked{made, static_cast<int64_t>(t)});
    }
    return made;
  }

  // Null: not all of them are constants, or they are large.
  Value* constant_stack(const std::vector<Value*>& values, const Type& type) {
    std::vector<std::byte> bytes;
    for (const Value* v : values) {
      const Dense* dense = type.bytes() <= kMostConstantBytes ? constant_of(v) : nullptr;
      if (dense == nullptr) {
        return nullptr;
      }
      const std::vector<std::byte> more = dense->expanded();
      bytes.insert(bytes.end(), more.begin(), more.end());
    }
    return rw_.constant(make_dense(type, std::move(bytes)));
  }

  void write_condition() {
    Region& region = *loop_->regions[0];
    rw_.place(region, *layers_.op(0, 0));
    Value* limit = rw_.constant(make_splat_int(kCounter, static_cast<int64_t>(layers_.layers())));
    Value* more = rw_.make(Kind::kCompare, {region.args[0].get(), limit}, {Elem::kI1, {}},
                           CompareAttrs{CompareDirection::kLt, CompareType::kSigned});
    region.append(Kind::kReturn, {more}, {}, NoAttrs{}, loop_->loc);
  }

  void write_body() {
    Region& body = *loop_->regions[1];
    Value* counter = body.args[0].get();
    taken_.resize(picked_.size());
    for (size_t i = 0; i < layers_.ops(); ++i) {
      const Op& op = *layers_.op(0, i);
      rw_.place(body, op);
      std::vector<Value*> operands;
      for (size_t k = 0; k < op.operands.size(); ++k) {
        operands.push_back(operand(i, k));
      }
      clone_op(op, body, map_)->operands = std::move(operands);
      for (size_t r = 0; r < layers_.reads().size(); ++r) {
        if (layers_.reads()[r].op == i) {
          keep(r, body);
        }
      }
    }
    rw_.place(body, *layers_.op(0, 0));
    std::vector<Value*> next = {
        rw_.make(Kind::kAdd, {counter, rw_.constant(make_splat_int(kCounter, 1))}, kCounter)};
    for (const RepeatedLayers::Carried& c : layers_.carried()) {
      next.push_back(map_.at(layers_.op(0, c.op)->result(c.result)));
    }
    next.insert(next.end(), kept_.begin(), kept_.end());
    body.append(Kind::kReturn, next, {}, NoAttrs{}, loop_->loc);
  }

  // Of op `i` in the body.
  Value* operand(size_t i, size_t k) {
    using Kind = RepeatedLayers::Source::Kind;
    const RepeatedLayers::Source& source = layers_.sources()[i][k];
    const Region& body = *loop_->regions[1];
    switch (source.kind) {
      case Kind::kInside:
        return map_.at(layers_.op(0, source.op)->result(source.result));
      case Kind::kCarried:
        return body.args[1 + source.index].get();
      case Kind::kPick: {
        Value*& taken = taken_[source.index];
        taken = taken == nullptr ? take(source.index, body.args[0].get()) : taken;
        return taken;
      }
      case Kind::kSame:
        break;
    }
    return layers_.op(0, i)->operands[k];
  }

  std::vector<Value*> starts(Value* layer, const Type& type) {
    std::vector<Value*> all = {layer};
    if (type.rank() > 0) {
      Value* zero = rw_.constant(make_splat_int(kCounter, 0));
      all.resize(static_cast<size_t>(type.rank()) + 1, zero);
    }
    return all;
  }

  // This layer's part of a stack.
  Value* take(size_t number, Value* counter) {
    const RepeatedLayers::Pick& pick = layers_.picks()[number];
    Value* layer = counter;
    if (pick.step != 1) {
      layer = rw_.make(Kind::kMultiply, {layer, rw_.constant(make_splat_int(kCounter, pick.step))},
                       kCounter);
    }
    if (pick.start != 0) {
      layer = rw_.make(Kind::kAdd, {layer, rw_.constant(make_splat_int(kCounter, pick.start))},
                       kCounter);
    }
    const Type& type = pick.values[0]->type;
    const Type part = stack_type(type, 1);
    std::vector<Value*> operands = {picked_[number]};
    const std::vector<Value*> at = starts(layer, type);
    operands.insert(operands.end(), at.begin(), at.end());
    Value* slice = rw_.make(Kind::kDynamicSlice, operands, part, DimsAttrs{part.dims});
    return rw_.make(Kind::kReshape, {slice}, type);
  }

  // What result `number` of the loop is behind this layer.
  void keep(size_t number, Region& body) {
    const RepeatedLayers::Read& read = layers_.reads()[number];
    Value* made = map_.at(value(0, read));
    if (!read.last_only) {
      Value* stack = body.args[1 + layers_.carried().size() + number].get();
      Value* part = rw_.make(Kind::kReshape, {made}, stack_type(made->type, 1));
      std::vector<Value*> operands = {stack, part};
      const std::vector<Value*> at = starts(body.args[0].get(), made->type);
      operands.insert(operands.end(), at.begin(), at.end());
      made = rw_.make(Kind::kDynamicUpdateSlice, operands, stack->type);
    }
    kept_.push_back(made);
  }

  ValueMap results(const Uses& uses) {
    ValueMap map;
    for (const size_t c : layers_.last()) {
      const RepeatedLayers::Carried& carried = layers_.carried()[c];
      map[layers_.op(layers_.layers() - 1, carried.op)->result(carried.result)] =
          loop_->result(1 + c);
    }
    for (size_t r = 0; r < layers_.reads().size(); ++r) {
      const RepeatedLayers::Read& read = layers_.reads()[r];
      Value* all = loop_->result(1 + layers_.carried().size() + r);
      if (read.last_only) {
        map[value(layers_.layers() - 1, read)] = all;
        continue;
      }
      for (size_t t = 0; t < layers_.layers(); ++t) {
        const Value* v = value(t, read);
        if (layers_.read_behind(v, uses)) {
          map[v] = part(all, static_cast<int64_t>(t), v->type);
          stacks_[map[v]] = {all, static_cast<int64_t>(t)};
        }
      }
    }
    return map;
  }

  Value* part(Value* stack, int64_t layer, const Type& type) {
    SliceAttrs a{Dims(stack->type.dims.size(), 0), stack->type.dims,
                 Dims(stack->type.dims.size(), 1)};
    a.start[0] = layer;
    a.limit[0] = layer + 1;
    Value* slice = rw_.make(Kind::kSlice, {stack}, stack_type(type, 1), a);
    return rw_.make(Kind::kReshape, {slice}, type);
  }

  const RepeatedLayers& layers_;
  Region& to_;
  Stacks& stacks_;
  Rewriter rw_;
  Op* loop_ = nullptr;
  std::vector<Value*> picked_;  // stack of each pick
  std::vector<Value*> taken_;   // by pick: this layer's part, from its first reader on
  std::vector<Value*> kept_;    // by read: its value behind this layer
  ValueMap map_;                // of the first layer to the body
};

// Ops of main in order, without constants: those stand wherever a layer has first used them.
std::vector<Op*> listed(const Region& main) {
  std::vector<Op*> list;
  for (const auto& op : main.ops) {
    if (op->kind != Kind::kConstant) {
      list.push_back(op.get());
    }
  }
  return list;
}

std::vector<Repeat> repeats_of(const std::vector<Op*>& list) {
  std::unordered_map<std::string, uint32_t> numbers;
  std::vector<uint32_t> text;
  for (size_t i = 0; i < list.size(); ++i) {
    const auto next = static_cast<uint32_t>(numbers.size());
    text.push_back(numbers.try_emplace(signature(*list[i], i), next).first->second);
  }
  // What an optimizer repeats has no product, and must not displace small layers beside it.
  return find_repeats(text, kShortestLayer, kFewestLayers, [&](const Repeat& r) {
    const auto first = list.begin() + static_cast<ptrdiff_t>(r.first);
    return std::any_of(first, first + static_cast<ptrdiff_t>(r.period),
                       [](const Op* op) { return is_product(*op); });
  });
}

// Later layers compute again what is cheap. True: the list holds no more.
bool recompute_in_later_layers(Region& main, const std::vector<Op*>& list,
                               const std::vector<Repeat>& repeats) {
  const Stacks none;
  bool any = false;
  Uses uses = compute_uses(main);
  std::unordered_set<const Op*> runs;
  for (const Repeat& r : repeats) {
    runs.insert(list.begin() + static_cast<ptrdiff_t>(r.first),
                list.begin() + static_cast<ptrdiff_t>(r.end()));
  }
  for (size_t later = 1; later < repeats.size(); ++later) {
    for (size_t earlier = 0; earlier < later; ++earlier) {
      std::vector<LayerWalk> done;
      for (bool more = true; more;) {
        RepeatedLayers maker(list, repeats[earlier], none, kFewestLayers);
        RepeatedLayers reader(list, repeats[later], none, kFewestLayers);
        if (!maker.plan(uses).empty() || !reader.plan(uses).empty()) {
          break;
        }
        more = false;
        for (const LayerWalk& walk : walks_between(maker, reader)) {
          if (std::ranges::find(done, walk) != done.end()) {
            continue;
          }
          more = true;
          done.push_back(walk);
          if (recompute_in_reader(main, maker, reader, walk, uses)) {
            any = true;
            uses = compute_uses(main);
          }
          break;
        }
      }
    }
  }
  for (const Repeat& repeat : repeats) {
    RepeatedLayers maker(list, repeat, none, kFewestLayers);
    any = (maker.plan(uses).empty() && widen_outside(main, maker, runs)) || any;
  }
  return any;
}

// Places each op behind what it needs, and otherwise where it is.
void order_by_operands(Region& region) {
  std::vector<std::unique_ptr<Op>> all;
  all.swap(region.ops);
  std::unordered_map<const Op*, size_t> at;
  for (size_t i = 0; i < all.size(); ++i) {
    at[all[i].get()] = i;
  }
  std::vector<size_t> waiting;
  std::vector<bool> waits(all.size());
  for (size_t first = 0; first < all.size(); ++first) {
    waiting.push_back(first);
    while (!waiting.empty()) {
      std::unique_ptr<Op>& op = all[waiting.back()];
      bool ready = true;
      for (const Value* v : op == nullptr ? std::vector<Value*>{} : dependencies(*op)) {
        const auto maker = at.find(v->def);
        if (maker != at.end() && all[maker->second] != nullptr) {
          if (waits[maker->second]) {
            throw Error("internal: operations of layers wait for each other", source_name(op->kind),
                        op->loc);
          }
          waits[maker->second] = true;
          waiting.push_back(maker->second);
          ready = false;
          break;
        }
      }
      if (ready) {
        waiting.pop_back();
        if (op != nullptr) {
          region.ops.push_back(std::move(op));
        }
      }
    }
  }
}

// The last op of main that the layers have of the first `ops` of each.
const Op* last_of(const Region& main, const RepeatedLayers& layers, size_t ops) {
  const Op* last = nullptr;
  for (const auto& op : main.ops) {
    const auto place = op->results.empty() ? std::nullopt : layers.place_of(op->result(0));
    last = place && place->op < ops ? op.get() : last;
  }
  return last;
}

// Puts a loop in the place of the layers, behind `last`. They stay alive in `old`, since maps name
// them. Ops of the layers behind it, which are of their tails, may be anywhere.
void replace_layers(Region& main, const RepeatedLayers& layers, const Op* last, const Uses& uses,
                    Stacks& stacks, std::vector<std::unique_ptr<Op>>& old) {
  std::vector<std::unique_ptr<Op>> all;
  all.swap(main.ops);
  ValueMap behind;
  for (auto& op : all) {
    const bool here = op.get() == last;
    (layers.holds(op.get()) ? old : main.ops).push_back(std::move(op));
    if (here) {
      behind = LoopWriter(layers, main, stacks).write(uses);
    }
  }
  replace_all_uses(main, behind);
}

// Layers one behind the other in a list of their own.
struct ListedLayers {
  std::vector<Op*> list;
  Repeat repeat;

  explicit ListedLayers(const std::vector<std::vector<Op*>>& layers)
      : repeat{0, layers.at(0).size(), layers.size(), 0} {
    for (const auto& ops : layers) {
      list.insert(list.end(), ops.begin(), ops.end());
    }
  }
};

// Each layer with its part of a phase of the tails.
std::vector<std::vector<Op*>> with_tails(const RepeatedLayers& layers,
                                         const std::vector<std::vector<Op*>>& tails) {
  std::vector<std::vector<Op*>> all(layers.layers());
  for (size_t t = 0; t < all.size(); ++t) {
    for (size_t i = 0; i < layers.ops(); ++i) {
      all[t].push_back(layers.op(t, i));
    }
    all[t].insert(all[t].end(), tails[t].begin(), tails[t].end());
  }
  return all;
}

// Makes loops of layers, and of what is done behind them for each.
class Roller {
 public:
  Roller(Region& main, PassLog* log) : main_(main), log_(log) {}

  void roll(const std::vector<Op*>& list, const Repeat& repeat,
            const std::unordered_set<const Op*>& runs) {
    const auto first = list.begin() + static_cast<ptrdiff_t>(repeat.first);
    const auto end = list.begin() + static_cast<ptrdiff_t>(repeat.end());
    if (std::any_of(first, end, [&](const Op* op) { return taken_.contains(op); })) {
      give_up("a loop of other layers has an operation of them in its tails");
      return;
    }
    const Uses uses = compute_uses(main_);
    RepeatedLayers layers(list, repeat, stacks_, kFewestLayers);
    if (const std::string_view why = layers.plan(uses); !why.empty()) {
      give_up(why);
      return;
    }
    const LayerTails tails = find_tails(main_, layers, runs, uses);
    if (tails.phases.empty()) {
      replace(layers, layers.ops(), uses);
      return;
    }
    const ListedLayers longer(with_tails(layers, tails.phases[0]));
    RepeatedLayers all(longer.list, longer.repeat, stacks_, kFewestLayers,
                       RepeatedLayers::Begin::kGiven);
    if (const std::string_view why = all.plan(uses);
        !why.empty() || all.layers() != layers.layers()) {
      give_up(why.empty() ? "too few layers have equal tails" : why);
      replace(layers, layers.ops(), uses);
      return;
    }
    replace(all, layers.ops(), uses);
    for (size_t phase = 1; phase < tails.phases.size(); ++phase) {
      roll_tails(tails.phases[phase]);
    }
    order_by_operands(main_);
  }

  std::vector<RolledLayers> rolled() { return std::move(rolled_); }

 private:
  void give_up(std::string_view why) {
    if (log_ != nullptr) {
      log_->gave_up(why);
    }
  }

  void roll_tails(const std::vector<std::vector<Op*>>& tails) {
    const Uses uses = compute_uses(main_);
    const ListedLayers listed(tails);
    RepeatedLayers layers(listed.list, listed.repeat, stacks_, kFewestLayers,
                          RepeatedLayers::Begin::kGiven);
    if (const std::string_view why = layers.plan(uses); !why.empty()) {
      give_up(why);
      return;
    }
    replace(layers, 0, uses);
  }

  // `tail`: the first op that is of a tail.
  void replace(const RepeatedLayers& layers, size_t tail, const Uses& uses) {
    rolled_.push_back({layers.layers(), layers.ops(), layers.op(0, 0)->loc});
    const Op* last = last_of(main_, layers, tail == 0 ? layers.ops() : tail);
    const auto before = static_cast<ptrdiff_t>(old_.size());
    replace_layers(main_, layers, last, uses, stacks_, old_);
    for (auto op = old_.begin() + before; op != old_.end(); ++op) {
      taken_.insert(op->get());
    }
  }

  Region& main_;
  PassLog* log_;
  std::vector<std::unique_ptr<Op>> old_;
  std::unordered_set<const Op*> taken_;  // of `old_`
  Stacks stacks_;
  std::vector<RolledLayers> rolled_;
};

// Of repeats that are layers: what repeats otherwise may be a part of their tails.
std::unordered_set<const Op*> ops_of_layers(const Region& main, const std::vector<Op*>& list,
                                            const std::vector<Repeat>& repeats) {
  const Uses uses = compute_uses(main);
  const Stacks none;
  std::unordered_set<const Op*> ops;
  for (const Repeat& repeat : repeats) {
    if (RepeatedLayers(list, repeat, none, kFewestLayers).plan(uses).empty()) {
      ops.insert(list.begin() + static_cast<ptrdiff_t>(repeat.first),
                 list.begin() + static_cast<ptrdiff_t>(repeat.end()));
    }
  }
  return ops;
}

}  // namespace

std::vector<RolledLayers> roll_layers(Module& module, PassLog* log) {
  Region& main = module.main->body;
  std::vector<Op*> list = listed(main);
  std::vector<Repeat> repeats = repeats_of(list);
  if (recompute_in_later_layers(main, list, repeats)) {
    list = listed(main);
    repeats = repeats_of(list);
  }
  const std::unordered_set<const Op*> runs = ops_of_layers(main, list, repeats);
  Roller roller(main, log);
  for (const Repeat& repeat : repeats) {
    roller.roll(list, repeat, runs);
  }
  module.number_ops();
  return roller.rolled();
}

}  // namespace tpu::compiler
