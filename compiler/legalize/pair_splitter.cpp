// See pair_splitter.hpp.
#include "legalize/pair_splitter.hpp"

#include <algorithm>
#include <array>

namespace tpu::compiler {

bool touches(const Op& op, Elem elem) {
  return std::any_of(op.operands.begin(), op.operands.end(),
                     [&](const Value* v) { return v->type.elem == elem; }) ||
         std::any_of(op.results.begin(), op.results.end(),
                     [&](const auto& r) { return r->type.elem == elem; });
}

bool PairSplitter::run(Function& main) {
  if (border_ == SplitBorder::kParts) {
    expand_infos(main);
    Region old;
    old.args.swap(main.body.args);
    region_arguments(old, main.body, 1);
    old_arguments_ = std::move(old.args);
    region(main.body);
  } else {
    arguments(main);
    region(main.body, &main);
  }
  return any_;
}

void PairSplitter::expand_infos(Function& main) const {
  main.args = expanded(main.args, main.body.args);
  main.results = expanded(main.results, main.body.terminator()->operands);
}

bool PairSplitter::is_split(Elem elem) const {
  return std::find(elems_.begin(), elems_.end(), elem) != elems_.end();
}

bool PairSplitter::is_touched(const Op& op) const {
  return std::any_of(elems_.begin(), elems_.end(), [&](Elem elem) { return touches(op, elem); });
}

// Taken apart in front of all other ops.
void PairSplitter::arguments(Function& main) {
  std::vector<std::unique_ptr<Op>> later;
  later.swap(main.body.ops);
  for (size_t i = 0; i < main.args.size(); ++i) {
    auto& arg = main.body.args[i];
    if (!is_split(arg.get())) {
      continue;
    }
    any_ = true;
    mark(main.args[i]);
    auto fresh = std::make_unique<Value>(*arg);
    fresh->type = main.args[i].global;
    rw_.place(main.body, *later.back());
    parts_[arg.get()] = unpacked(fresh.get());
    whole_[arg.get()] = fresh.get();
    arg.swap(fresh);
    old_arguments_.push_back(std::move(fresh));
  }
  for (auto& op : later) {
    main.body.ops.push_back(std::move(op));
  }
}

// Of two values, where `values` has one that is split.
template <typename Info, typename Values>
std::vector<Info> PairSplitter::expanded(const std::vector<Info>& infos,
                                         const Values& values) const {
  std::vector<Info> all;
  for (size_t i = 0; i < infos.size(); ++i) {
    Info info = infos[i];
    const bool split = is_split(info.global.elem) && is_split(&*values[i]);
    info.global = split ? part_type(info.global) : info.global;
    all.insert(all.end(), split ? 2 : 1, info);
  }
  return all;
}

void PairSplitter::region(Region& r, Function* main) {
  std::vector<std::unique_ptr<Op>> old;
  old.swap(r.ops);
  for (auto& op : old) {
    op->operands = mapped(std::move(op->operands), replaced_);
    rw_.place(r, *op);
    if (op->kind == Kind::kReturn) {
      op->operands = main != nullptr ? returned(op->operands, *main) : expanded(op->operands);
      r.ops.push_back(std::move(op));
    } else if (!op->regions.empty()) {
      with_regions(std::move(op), r);
    } else if (takes_part(*op)) {
      any_ = true;
      placed(*op, [&] { one(*op); });
      bury(std::move(op));
    } else {
      r.ops.push_back(std::move(op));
    }
  }
}

// Errors without a place are of the op.
template <typename Fn>
void PairSplitter::placed(const Op& op, Fn&& fn) const {
  try {
    fn();
  } catch (const Error& e) {
    if (e.op().empty()) {
      refuse(op, e.message());
    }
    throw;
  }
}

Value* PairSplitter::whole(Value* v) {
  return whole_.contains(v) ? whole_.at(v) : is_split(v) ? packed(parts(v)) : v;
}

std::vector<Value*> PairSplitter::returned(const std::vector<Value*>& values, Function& main) {
  std::vector<Value*> out;
  for (size_t i = 0; i < values.size(); ++i) {
    if (is_split(values[i])) {
      mark(main.results[i]);
    }
    out.push_back(whole(values[i]));
  }
  return out;
}

std::vector<Value*> PairSplitter::expanded(const std::vector<Value*>& values) const {
  std::vector<Value*> out;
  for (Value* v : values) {
    if (is_split(v)) {
      out.push_back(parts(v).first);
      out.push_back(parts(v).second);
    } else {
      out.push_back(v);
    }
  }
  return out;
}

std::vector<Type> PairSplitter::expanded_types(const Op& op) const {
  std::vector<Type> types;
  for (const auto& r : op.results) {
    const bool split = is_split(r.get());
    types.insert(types.end(), split ? 2 : 1, split ? part_type(r->type) : r->type);
  }
  return types;
}

void PairSplitter::set_expanded(const Op& op, const Op& fresh) {
  size_t at = 0;
  for (const auto& r : op.results) {
    if (is_split(r.get())) {
      parts_[r.get()] = {fresh.result(at), fresh.result(at + 1)};
      at += 2;
    } else {
      replaced_[r.get()] = fresh.result(at++);
    }
  }
}

PairSplitter::Parts PairSplitter::bound(const Op& op, size_t i) {
  const Parts& p = parts(op.operands[i]);
  const Dims& dims = op.type().dims;
  return p.first->type.dims == dims
             ? p
             : Parts{b_.broadcast_scalar(p.first, dims), b_.broadcast_scalar(p.second, dims)};
}

void PairSplitter::by_parts(const Op& op) {
  std::array<Value*, 2> made{};
  for (const bool second : {false, true}) {
    std::vector<Value*> operands;
    for (Value* v : op.operands) {
      operands.push_back(!is_split(v) ? v : second ? parts(v).second : parts(v).first);
    }
    made[second ? 1 : 0] = rw_.make(op.kind, std::move(operands), part_type(op.type()), op.attrs);
  }
  set(op, Parts{made[0], made[1]});
}

void PairSplitter::on_all_parts(const Op& op) {
  set_expanded(op, *rw_.make_op(op.kind, expanded(op.operands), expanded_types(op), op.attrs));
}

void PairSplitter::send(const Op& op) {
  rw_.make_op(op.kind, {whole(op.operands[0])}, {}, op.attrs);
}

void PairSplitter::recv(const Op& op) {
  set(op, unpacked(rw_.make(op.kind, {}, memory_type(op.type()), op.attrs)));
}

void PairSplitter::with_regions(std::unique_ptr<Op> op, Region& to) {
  if (is_touched(*op)) {
    any_ = true;
    one_with_regions(std::move(op), to);
    return;
  }
  for (auto& inner : op->regions) {
    region(*inner);
  }
  rw_.place(to, *op);
  to.ops.push_back(std::move(op));
}

Attrs PairSplitter::expanded_attrs(const Op& op) const {
  if (op.kind != Kind::kManualComputation) {
    return op.attrs;
  }
  ManualAttrs attrs = op.as<ManualAttrs>();
  const auto twice = [&](std::vector<ShardingAttrs>& list, const auto& values) {
    std::vector<ShardingAttrs> all;
    for (size_t i = 0; i < list.size(); ++i) {
      all.insert(all.end(), is_split(&*values[i]) ? 2 : 1, list[i]);
    }
    list = std::move(all);
  };
  twice(attrs.in, op.operands);
  twice(attrs.out, op.results);
  return attrs;
}

void PairSplitter::expand(std::unique_ptr<Op> op, Region& to) {
  Op* fresh = to.append(op->kind, expanded(op->operands), expanded_types(*op), expanded_attrs(*op),
                        op->loc);
  for (auto& inner : op->regions) {
    Region* copy = fresh->add_region();
    region_arguments(*inner, *copy, op->kind == Kind::kSort ? 2 : 1);
    for (auto& body : inner->ops) {
      body->parent = copy;
      copy->ops.push_back(std::move(body));
    }
    inner->ops.clear();
    region(*copy);
  }
  rw_.place(to, *op);
  set_expanded(*op, *fresh);
  bury(std::move(op));
}

// `together` arguments belong to one operand (sort: left and right): all first parts of such a
// group precede its second parts.
void PairSplitter::region_arguments(const Region& from, Region& to, size_t together) {
  for (size_t i = 0; i < from.args.size(); i += together) {
    const bool split = is_split(from.args[i].get());
    any_ = any_ || split;
    std::vector<Value*> first, second;
    for (size_t k = 0; k < together; ++k) {
      const Type& t = from.args[i + k]->type;
      first.push_back(to.add_arg(split ? part_type(t) : t));
    }
    for (size_t k = 0; split && k < together; ++k) {
      second.push_back(to.add_arg(part_type(from.args[i + k]->type)));
    }
    for (size_t k = 0; k < together; ++k) {
      const Value* old = from.args[i + k].get();
      if (split) {
        parts_[old] = {first[k], second[k]};
      } else {
        replaced_[old] = first[k];
      }
    }
  }
}

}  // namespace tpu::compiler
