// select_and_scatter in gather form: one kernel finds the chosen tap of every window, one kernel
// lets every input position add up the windows that chose it. The second runs over positions cut
// into (window, phase within the stride): what a phase reads is the same window list, so the phases
// are loops over which the windows' arrays are broadcast.
#include <algorithm>
#include <bit>

#include "legalize/builder.hpp"
#include "legalize/legalize.hpp"

namespace tpu::compiler::legalization {
namespace {

class ScatterLowering {
 public:
  ScatterLowering(Op& op, Rewriter& rw)
      : op_(op),
        b_(rw),
        a_(op.as<WindowAttrs>()),
        in_(op.type().dims),
        out_(op.operand_type(1).dims) {
    int64_t weight = 1;
    overlap_.resize(in_.size());
    weight_.resize(in_.size());
    for (size_t d = in_.size(); d-- > 0;) {
      overlap_[d] = (a_.size[d] + a_.stride[d] - 1) / a_.stride[d];
      weight_[d] = weight;
      weight *= overlap_[d] * a_.stride[d];
    }
  }

  Value* run() { return scattered(chosen_taps()); }

 private:
  int64_t code(const Dims& tap) const {
    int64_t code = 0;
    for (size_t d = 0; d < tap.size(); ++d) {
      code += tap[d] * weight_[d];
    }
    return code;
  }

  // Of the numbers: bytes if they fit.
  Elem code_elem() const {
    const bool small = weight_.empty() || weight_[0] * overlap_[0] * a_.stride[0] <= 128;
    return small ? Elem::kI8 : Elem::kI32;
  }

  // Number of the tap of each window that no later one beats; -1 if all of it is padding.
  Value* chosen_taps() {
    const Type elem{op_.type().elem, {}};
    Value* x = b_.pad(op_.operands[0], b_.splat_int(elem, 0), a_.pad_low, a_.pad_high);
    const Type codes{code_elem(), out_};
    Value *best = nullptr, *chosen = nullptr;
    bool all_chose = false;  // one of the taps so far is in the input for every window
    Dims at(in_.size(), 0);
    do {
      Dims limit(at.size());
      for (size_t d = 0; d < at.size(); ++d) {
        limit[d] = at[d] + (out_[d] - 1) * a_.stride[d] + 1;
      }
      Value* tap = b_.slice(x, at, limit, a_.stride);
      Value* outside = outside_input(at);
      Value* number = b_.splat_int(codes, code(at));
      if (best == nullptr) {
        best = tap;
        chosen = outside == nullptr ? number : b_.select(outside, b_.splat_int(codes, -1), number);
      } else {
        Value* keeps = b_.apply(*op_.regions[0], {best, tap}, out_)[0];
        if (!all_chose) {
          Value* has = b_.compare(CompareDirection::kGe, chosen, b_.splat_int(codes, 0));
          keeps = b_.logical_and(keeps, has);
        }
        if (outside != nullptr) {
          keeps = b_.logical_or(keeps, outside);
        }
        best = b_.select(keeps, best, tap);
        chosen = b_.select(keeps, chosen, number);
      }
      all_chose = all_chose || outside == nullptr;
    } while (advance(at, a_.size));
    return chosen;
  }

  // Which windows have this tap in the padding and not in the input; null: none.
  Value* outside_input(const Dims& tap) {
    Value* outside = nullptr;
    const auto any = [&](Value* v) {
      outside = outside == nullptr ? v : b_.logical_or(outside, v);
    };
    for (size_t d = 0; d < tap.size(); ++d) {
      const int64_t first = tap[d] - a_.pad_low[d];
      const int64_t last = first + (out_[d] - 1) * a_.stride[d];
      if (first >= 0 && last < in_[d]) {
        continue;
      }
      const Type type{Elem::kI32, out_};
      Value* window = b_.iota(type, static_cast<int64_t>(d));
      const auto bound = [&](int64_t position) {  // first window whose tap is at it or behind
        const int64_t s = a_.stride[d];
        return b_.splat_int(type, (std::max<int64_t>(position - first, 0) + s - 1) / s);
      };
      if (first < 0) {
        any(b_.compare(CompareDirection::kLt, window, bound(0)));
      }
      if (last >= in_[d]) {
        any(b_.compare(CompareDirection::kGe, window, bound(in_[d])));
      }
    }
    return outside;
  }

  // Pads an array over windows so that every position finds all windows that may cover it.
  Value* around(Value* v, Value* value, const Dims& positions) {
    Dims low, high;
    for (size_t d = 0; d < in_.size(); ++d) {
      low.push_back(overlap_[d] - 1);
      high.push_back(std::max<int64_t>(positions[d] - out_[d], 0));
    }
    return b_.pad(v, value, low, high);
  }

  // A product takes as long as eight shifts.
  Value* weighted(Value* v, int64_t weight) {
    const auto bits = static_cast<uint64_t>(weight);
    return std::has_single_bit(bits)
               ? b_.binary(Kind::kShiftLeft, v, b_.splat_int(v->type, std::countr_zero(bits)))
               : b_.mul(v, b_.splat_int(v->type, weight));
  }

  Value* scattered(Value* chosen) {
    const Elem e = op_.type().elem;
    Dims positions, domain, where, phase(in_.size(), -1);
    for (size_t d = 0; d < in_.size(); ++d) {
      const int64_t s = a_.stride[d];
      positions.push_back((a_.pad_low[d] + in_[d] + s - 1) / s);
      where.push_back(static_cast<int64_t>(domain.size()));
      domain.push_back(positions[d]);
      if (s > 1) {
        phase[d] = static_cast<int64_t>(domain.size());
        domain.push_back(s);
      }
    }
    const Type codes{Elem::kI32, domain};
    Value* wanted = b_.splat_int(codes, 0);
    for (size_t d = 0; d < in_.size(); ++d) {
      if (phase[d] >= 0) {
        wanted = b_.add(wanted, weighted(b_.iota(codes, phase[d]), weight_[d]));
      }
    }
    chosen = around(chosen, b_.splat_int({chosen->type.elem, {}}, -1), positions);
    Value* source = around(op_.operands[1], b_.splat_int({e, {}}, 0), positions);
    Value* sum = b_.broadcast_scalar(op_.operands[2], domain);
    Dims back(in_.size(), 0);  // from the window that starts furthest before the position
    do {
      Dims start, limit, tap;
      for (size_t d = 0; d < in_.size(); ++d) {
        start.push_back(back[d]);
        limit.push_back(back[d] + positions[d]);
        tap.push_back((overlap_[d] - 1 - back[d]) * a_.stride[d]);
      }
      Value* c =
          b_.convert(b_.broadcast(b_.slice(chosen, start, limit), domain, where), Elem::kI32);
      Value* g = b_.broadcast(b_.slice(source, start, limit), domain, where);
      Value* mine =
          b_.compare(CompareDirection::kEq, c, b_.add(wanted, b_.splat_int(codes, code(tap))));
      sum = b_.select(mine, b_.apply(*op_.regions[1], {sum, g}, domain)[0], sum);
    } while (advance(back, overlap_));
    Dims whole, first, end, cropped;  // negative padding: no window covers the first positions
    for (size_t d = 0; d < in_.size(); ++d) {
      whole.push_back(positions[d] * a_.stride[d]);
      first.push_back(std::max<int64_t>(a_.pad_low[d], 0));
      end.push_back(a_.pad_low[d] + in_[d]);
      cropped.push_back(std::max<int64_t>(-a_.pad_low[d], 0));
    }
    Value* covered = b_.slice(b_.reshape(sum, whole), first, end);
    return b_.pad(covered, op_.operands[2], cropped, Dims(in_.size(), 0));
  }

  Op& op_;
  Builder b_;
  const WindowAttrs& a_;
  const Dims in_, out_;
  Dims overlap_;  // windows over a position, per dimension
  Dims weight_;   // of a tap's coordinates in its number
};

}  // namespace

std::vector<Value*> select_and_scatter(Op& op, Rewriter& rw) {
  Builder b(rw);
  if (op.type().count() == 0) {
    return {b.splat_int(op.type(), 0)};
  }
  if (op.operand_type(1).count() == 0) {
    return {b.broadcast_scalar(op.operands[2], op.type().dims)};
  }
  return {ScatterLowering(op, rw).run()};
}

}  // namespace tpu::compiler::legalization
