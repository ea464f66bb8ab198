// Collectives that the exchange kernels do not have, said by those that they have:
//   groups of one core        the operand itself
//   collective_broadcast      all_gather on a new dim, entry 0
//   reduce_scatter            all_to_all on a new dim, then the body over its entries in pairs:
//                             ((0+1)+(2+3))+..; a lone last one goes up unchanged
//   all_reduce                of groups that are not closed under xor, or by a body of several ops:
//                             all_gather on a new dim, then the same
#include <algorithm>
#include <set>

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
  Collective(Op& op, Rewriter& rw) : op_(op), a_(op.as<CollectiveAttrs>()), b_(rw), rw_(rw) {}

  std::vector<Value*> run() {
    const auto n = static_cast<int64_t>(a_.groups[0].size());
    const bool empty = std::any_of(op_.results.begin(), op_.results.end(),
                                   [](const auto& r) { return r->type.count() == 0; });
    if (n == 1 || empty) {
      std::vector<Value*> out;
      for (size_t i = 0; i < op_.operands.size(); ++i) {
        out.push_back(n == 1 ? op_.operands[i] : b_.splat_int(op_.type(i), 0));
      }
      return out;
    }
    std::vector<Value*> out;
    for (Value* x : op_.operands) {
      switch (op_.kind) {
        case Kind::kCollectiveBroadcast:
          out.push_back(entry(gathered(x), 0));
          break;
        case Kind::kReduceScatter:
          out.push_back(combined(scattered(x)));
          break;
        case Kind::kAllReduce:
          if (closed_under_xor(a_.groups) && is_exchanged_sum(op_)) {
            return {};
          }
          out.push_back(combined(gathered(x)));
          break;
        default:
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

  Value* combined(Value* x) {
    std::vector<Value*> level;
    for (int64_t i = 0; i < size(); ++i) {
      level.push_back(entry(x, i));
    }
    while (level.size() > 1) {
      std::vector<Value*> next;
      for (size_t i = 0; i + 1 < level.size(); i += 2) {
        next.push_back(b_.apply(*op_.regions[0], {level[i], level[i + 1]}, level[i]->type.dims)[0]);
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
};

}  // namespace

std::vector<Value*> collective(Op& op, Rewriter& rw) { return Collective(op, rw).run(); }

std::vector<Value*> permute(Op& op, Rewriter& rw) {
  Builder b(rw);
  const auto& pairs = op.as<PermuteAttrs>().pairs;
  return pairs.empty() || op.type().count() == 0 ? std::vector<Value*>{b.splat_int(op.type(), 0)}
                                                 : std::vector<Value*>{};
}

}  // namespace tpu::compiler::legalization
