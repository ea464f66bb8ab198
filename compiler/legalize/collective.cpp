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
// Ops with several operands of which one is a 64-bit integer become one for each operand.
#include <algorithm>
#include <array>
#include <set>
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

// Every group is a coset of one set of xor masks.
bool closed_under_xor(const Groups& groups) {
  const auto masks_of = [](const std::vector<int64_t>& group) {
    std::set<int64_t> masks;
    for (const int64_t core : group) {
      masks.insert(core ^ group[0]);
    }
    return masks;
  };
  const std::set<int64_t> first = masks_of(groups[0]);
  for (const int64_t a : first) {
    for (const int64_t b : first) {
      if (!first.contains(a ^ b)) {
        return false;
      }
    }
  }
  return std::all_of(groups.begin(), groups.end(),
                     [&](const auto& group) { return masks_of(group) == first; });
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
    for (Value* x : op_.operands) {
      switch (op_.kind) {
        case Kind::kCollectiveBroadcast:
          out.push_back(uneven_ || !all_ ? spread(x) : entry(gathered(x), 0));
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
