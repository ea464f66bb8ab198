// Collectives that the exchange kernels do not have, said by those that they have:
//   groups of one core        the operand itself
//   collective_broadcast      all_gather on a new dim, entry 0; with cores outside of all groups,
//                             or groups of several sizes: collective_permutes from those that have
//                             it to as many others, and zeros outside
//   reduce_scatter            all_to_all on a new dim, then the body over its entries in pairs:
//                             ((0+1)+(2+3))+..; a lone last one goes up unchanged
//   all_reduce                of groups that are not closed under xor, or by a body of several ops:
//                             all_gather on a new dim, then the same; of groups of several sizes:
//                             collective_permutes around each group, its entries in order by a
//                             gather, and the same over as many as the group has
//   of groups of more than kDirect cores, whose direct exchange would need a pair of semaphores for
//   each other member: the same within parts of a group and then across them, again until they are
//   small enough; a collective_broadcast by permutes
// Ops with several operands of which one is a 64-bit integer become one for each operand.
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "legalize/builder.hpp"
#include "legalize/legalize.hpp"

namespace tpu::compiler::legalization {

namespace {

Dims with_front(int64_t n, const Dims& dims) {
  Dims out{n};
  out.insert(out.end(), dims.begin(), dims.end());
  return out;
}

constexpr int64_t kDirect = 32;    // members of groups that exchange directly
constexpr int64_t kMostParts = 8;  // members of a part of a larger group
constexpr int64_t kHalved = 2048;  // members of groups that are summed by halving

// Masks of which all of a group are made by xor, by their highest bit; zeros elsewhere.
class XorBasis {
 public:
  void add(int64_t mask) {
    if (const int64_t rest = reduced(mask); rest != 0) {
      basis_[top(rest)] = rest;
      ++rank_;
    }
  }
  bool makes(int64_t mask) const { return reduced(mask) == 0; }
  size_t masks() const { return size_t{1} << rank_; }  // that it makes

 private:
  static size_t top(int64_t mask) {
    return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(mask))) - 1;
  }
  int64_t reduced(int64_t mask) const {
    while (mask != 0 && basis_[top(mask)] != 0) {
      mask ^= basis_[top(mask)];
    }
    return mask;
  }
  std::array<int64_t, 64> basis_{};
  size_t rank_ = 0;
};

// Every group is a coset of one set of xor masks. The members of a group differ.
bool closed_under_xor(const Groups& groups) {
  XorBasis basis;
  for (const int64_t core : groups[0]) {
    basis.add(core ^ groups[0][0]);
  }
  return std::ranges::all_of(groups, [&](const auto& group) {
    return group.size() == basis.masks() &&
           std::ranges::all_of(group, [&](int64_t core) { return basis.makes(core ^ group[0]); });
  });
}

bool is_exchanged_sum(const Op& op) {
  return simple_reducer(*op.regions[0]) && elem_bytes(op.operand_type(0).elem) != 8;
}

class Collective {
 public:
  Collective(Op& op, Rewriter& rw, int64_t cores)
      : op_(op), a_(op.as<CollectiveAttrs>()), b_(rw), rw_(rw), cores_(static_cast<size_t>(cores)) {
    size_t members = 0;
    for (const auto& group : a_.groups) {
      most_ = std::max(most_, group.size());
      uneven_ = uneven_ || group.size() != a_.groups[0].size();
      members += group.size();
    }
    all_ = members == cores_;
  }

  std::vector<Value*> run() {
    const int64_t n = all_ ? static_cast<int64_t>(most_) : 0;
    if (n == 1) {
      return op_.operands;
    }
    if (std::any_of(op_.results.begin(), op_.results.end(),
                    [](const auto& r) { return r->type.count() == 0; })) {
      return op_.operands.size() > 1 ? collective_by_operand(op_, rw_)
                                     : std::vector<Value*>{b_.splat_int(op_.type(), 0)};
    }
    std::vector<Value*> out;
    const bool split = all_ && !uneven_ && size() > kDirect && cut_groups();
    for (Value* x : op_.operands) {
      if (split && op_.kind != Kind::kCollectiveBroadcast) {
        if (op_.kind == Kind::kAllReduce && size() <= kHalved && is_exchanged_sum(op_) &&
            closed_under_xor(a_.groups)) {
          return {};
        }
        out.push_back(by_parts(x));
        continue;
      }
      switch (op_.kind) {
        case Kind::kCollectiveBroadcast:
          out.push_back(uneven_ || !all_ || split ? spread(x) : entry(gathered(x), 0));
          break;
        case Kind::kReduceScatter:
          out.push_back(combined(scattered(x)));
          break;
        case Kind::kAllReduce:
          if (uneven_) {
            out.push_back(combined_of_own(x));
            break;
          }
          if (closed_under_xor(a_.groups) && is_exchanged_sum(op_)) {
            return {};
          }
          out.push_back(combined(gathered(x)));
          break;
          TPU_CASES(SOURCE, ELEMENTWISE, SHAPE, CONTRACTION, BODY, CONTROL, HOST, WHOLE, MATRIX,
                    CALL, SIZED, GLOBAL, END)
        case Kind::kAllGather:
        case Kind::kAllToAll:
        case Kind::kCollectivePermute:
          return {};
      }
    }
    return out;
  }

 private:
  int64_t size() const { return static_cast<int64_t>(a_.groups[0].size()); }

  // Position p of a group is q * parts_ + r: `inner_` has the groups of equal q, `outer_` those of
  // equal r. False: the size has no divisor.
  bool cut_groups() {
    parts_ = kMostParts;
    while (size() % parts_ != 0) {
      --parts_;
    }
    for (const auto& group : a_.groups) {
      for (int64_t q = 0; q < size() / parts_; ++q) {
        const auto first = group.begin() + q * parts_;
        inner_.emplace_back(first, first + parts_);
      }
      for (int64_t r = 0; r < parts_; ++r) {
        auto& across = outer_.emplace_back();
        for (int64_t q = 0; q < size() / parts_; ++q) {
          across.push_back(group[static_cast<size_t>(q * parts_ + r)]);
        }
      }
    }
    return parts_ > 1;
  }

  Value* with_groups(Value* x, const Type& type, const Groups& groups, CollectiveAttrs attrs) {
    attrs.groups = groups;
    attrs.split_count = op_.kind == Kind::kAllToAll ? static_cast<int64_t>(groups[0].size()) : 0;
    Value* v = rw_.make(op_.kind, {x}, type, attrs);
    for (const auto& inner : op_.regions) {
      ValueMap map;
      clone_region(*inner, *v->def, map);
    }
    return v;
  }

  // As if all members of a group were one part: within the parts, then across them.
  Value* by_parts(Value* x) {
    const Elem elem = x->type.elem;
    const auto dim = static_cast<size_t>(a_.dim);
    Dims dims = x->type.dims;
    if (op_.kind == Kind::kAllReduce) {
      return with_groups(with_groups(x, x->type, inner_, a_), x->type, outer_, a_);
    }
    if (op_.kind == Kind::kAllGather) {
      dims[dim] *= parts_;
      Value* part = with_groups(x, {elem, dims}, inner_, a_);
      dims[dim] *= size() / parts_;
      return with_groups(part, {elem, dims}, outer_, a_);
    }
    const Dims places{size() / parts_, parts_, dims[dim] / size()};
    CollectiveAttrs within = a_, across = a_;
    within.dim = a_.dim + 1;
    Dims cut(dims.begin(), dims.begin() + a_.dim);
    cut.insert(cut.end(), places.begin(), places.end());
    cut.insert(cut.end(), dims.begin() + a_.dim + 1, dims.end());
    Value* v = b_.reshape(x, cut);
    if (op_.kind == Kind::kReduceScatter) {
      cut[dim + 1] = 1;
      v = with_groups(v, {elem, cut}, inner_, within);
      cut[dim] = 1;
      v = with_groups(v, {elem, cut}, outer_, across);
      dims[dim] /= size();
      return b_.reshape(v, dims);
    }
    within.concat_dim = within.dim;
    across.concat_dim = across.dim;
    v = with_groups(with_groups(v, v->type, inner_, within), v->type, outer_, across);
    // What were places of receivers are places of senders now: they go to the concatenated dim.
    Dims order;
    for (int64_t d = 0; d < x->type.rank(); ++d) {
      if (d == a_.concat_dim) {
        order.insert(order.end(), {a_.dim, a_.dim + 1});
      }
      order.push_back(d < a_.dim ? d : d + 2);
    }
    dims[dim] /= size();
    dims[static_cast<size_t>(a_.concat_dim)] *= size();
    return b_.reshape(b_.transpose(v, order), dims);
  }

  // [members, ...]
  Value* gathered(Value* x) {
    CollectiveAttrs attrs = a_;
    attrs.dim = 0;
    return rw_.make(Kind::kAllGather, {b_.reshape(x, with_front(1, x->type.dims))},
                    {x->type.elem, with_front(size(), x->type.dims)}, attrs);
  }

  // [members, ...]: everybody's entry for this member.
  Value* scattered(Value* x) {
    CollectiveAttrs attrs = a_;
    Dims dims = x->type.dims;
    dims[static_cast<size_t>(a_.dim)] /= size();
    attrs.dim = a_.dim + 1;
    attrs.concat_dim = 0;
    attrs.split_count = size();
    return rw_.make(Kind::kAllToAll, {b_.reshape(x, with_front(1, x->type.dims))},
                    {x->type.elem, with_front(size(), dims)}, attrs);
  }

  Value* entry(Value* x, int64_t i) {
    return b_.reshape(b_.slice_dim(x, 0, i, i + 1), {x->type.dims.begin() + 1, x->type.dims.end()});
  }

  // What `table` has for this core.
  Value* own(const std::vector<Dims>& table) {
    const auto columns = static_cast<int64_t>(table[0].size());
    std::vector<int32_t> all;
    for (const Dims& row : table) {
      all.insert(all.end(), row.begin(), row.end());
    }
    Value* v =
        rw_.constant(make_dense_of(Type{Elem::kI32, {static_cast<int64_t>(cores_), columns}}, all));
    Value* core = b_.convert(rw_.make(Kind::kPartitionId, {}, {Elem::kU32, {}}), Elem::kI32);
    v = rw_.make(Kind::kDynamicSlice, {v, core, b_.splat_int({Elem::kI32, {}}, 0)},
                 {Elem::kI32, {1, columns}}, DimsAttrs{{1, columns}});
    return b_.reshape(v, {columns});
  }

  // `yes` on cores whose row of `table` is 1, `no` on the others.
  Value* choose(const std::vector<Dims>& table, Value* yes, Value* no) {
    Value* mine = b_.reshape(own(table), {});
    Value* chosen = b_.compare(CompareDirection::kNe, mine, b_.zeros_like(mine));
    return b_.select(b_.broadcast_scalar(chosen, yes->type.dims), yes, no);
  }

  Value* permuted(Value* x, std::vector<std::array<int64_t, 2>> pairs) {
    return rw_.make(Kind::kCollectivePermute, {x}, x->type,
                    PermuteAttrs{std::move(pairs), a_.channel});
  }

  // collective_broadcast of any groups: twice as many members have it after each step.
  Value* spread(Value* x) {
    std::vector<Dims> roots(cores_, {0});
    for (const auto& group : a_.groups) {
      roots[static_cast<size_t>(group[0])] = {1};
    }
    Value* out = choose(roots, x, b_.zeros_like(x));
    for (size_t have = 1; have < most_; have *= 2) {
      std::vector<std::array<int64_t, 2>> pairs;
      std::vector<Dims> targets(cores_, {0});
      for (const auto& group : a_.groups) {
        for (size_t i = 0; i < have && i + have < group.size(); ++i) {
          pairs.push_back({group[i], group[i + have]});
          targets[static_cast<size_t>(group[i + have])] = {1};
        }
      }
      out = choose(targets, permuted(out, std::move(pairs)), out);
    }
    return out;
  }

  // all_reduce of groups of several sizes: [most_, ...] holds what came around the group by the
  // number of steps, 0 of them this core's own; then in the order of the group.
  Value* combined_of_own(Value* x) {
    std::vector<Value*> came{b_.reshape(x, with_front(1, x->type.dims))};
    for (size_t step = 1; step < most_; ++step) {
      std::vector<std::array<int64_t, 2>> pairs;
      for (const auto& group : a_.groups) {
        const size_t n = group.size();
        for (size_t p = 0; p < n; ++p) {
          pairs.push_back({group[p], group[step < n ? (p + step) % n : p]});
        }
      }
      came.push_back(b_.reshape(permuted(x, std::move(pairs)), with_front(1, x->type.dims)));
    }
    std::vector<Dims> steps(cores_, Dims(most_, 0)), sizes(cores_);
    for (const auto& group : a_.groups) {
      const size_t n = group.size();
      for (size_t p = 0; p < n; ++p) {
        const auto core = static_cast<size_t>(group[p]);
        sizes[core] = {static_cast<int64_t>(n)};
        for (size_t k = 0; k < n; ++k) {
          steps[core][k] = static_cast<int64_t>((p + n - k) % n);
        }
      }
    }
    GatherAttrs rows;
    rows.collapsed_slice_dims = rows.start_index_map = {0};
    rows.index_vector_dim = 1;
    rows.slice_sizes = with_front(1, x->type.dims);
    for (int64_t d = 1; d <= x->type.rank(); ++d) {
      rows.offset_dims.push_back(d);
    }
    Value* all = b_.concatenate(std::move(came), 0);
    all = rw_.make(Kind::kGather, {all, own(steps)}, all->type, rows);
    return combined(all, std::move(sizes));
  }

  // `sizes`: by core how many entries count; none: all of them, everywhere.
  Value* combined(Value* x, std::vector<Dims> sizes = {}) {
    std::vector<Value*> level;
    for (int64_t i = 0; i < x->type.dims[0]; ++i) {
      level.push_back(entry(x, i));
    }
    while (level.size() > 1) {
      std::vector<Value*> next;
      for (size_t i = 0; i + 1 < level.size(); i += 2) {
        next.push_back(b_.apply(*op_.regions[0], {level[i], level[i + 1]}, level[i]->type.dims)[0]);
        std::vector<Dims> both;
        for (const Dims& n : sizes) {
          both.push_back({static_cast<int64_t>(i) + 1 < n[0] ? 1 : 0});
        }
        if (!both.empty()) {
          next.back() = choose(both, next.back(), level[i]);
        }
      }
      for (Dims& n : sizes) {
        n[0] = (n[0] + 1) / 2;
      }
      if (level.size() % 2 != 0) {
        next.push_back(level.back());
      }
      level = std::move(next);
    }
    return level[0];
  }

  Op& op_;
  const CollectiveAttrs& a_;
  Builder b_;
  Rewriter& rw_;
  const size_t cores_;
  int64_t parts_ = 1;
  Groups inner_, outer_;
  size_t most_ = 0;      // members of the largest group
  bool uneven_ = false;  // there are smaller ones
  bool all_ = false;     // every core is in a group
};

}  // namespace

std::vector<Value*> collective(Op& op, Rewriter& rw, int64_t cores) {
  return Collective(op, rw, cores).run();
}

std::vector<Value*> collective_by_operand(Op& op, Rewriter& rw) {
  std::vector<Value*> out;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    out.push_back(rw.make(op.kind, {op.operands[i]}, op.type(i), op.attrs));
    for (const auto& inner : op.regions) {
      ValueMap map;
      clone_region(*inner, *out.back()->def, map);
    }
  }
  return out;
}

std::vector<Value*> permute(Op& op, Rewriter& rw) {
  Builder b(rw);
  const auto& pairs = op.as<PermuteAttrs>().pairs;
  return pairs.empty() || op.type().count() == 0 ? std::vector<Value*>{b.splat_int(op.type(), 0)}
                                                 : std::vector<Value*>{};
}

}  // namespace tpu::compiler::legalization
