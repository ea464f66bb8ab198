// reduce_window: padding by a pad (base dilation is interior padding), then the taps of the window
// as strided slices folded in one fused kernel. Large windows go dimension by dimension, in steps
// that reach radix times further each (cumulative sums: log n kernels), windows that do not overlap
// and windows over a whole dimension become reductions.
#include <algorithm>

#include "legalize/legalize.hpp"
#include "legalize/reduce_tree.hpp"

namespace tpu::compiler::legalization {
namespace {

constexpr int64_t kMaxTaps = 12;      // folded in one go over all dims
constexpr int64_t kLargeWindow = 16;  // from here on a reduction beats taps

class WindowLowering {
 public:
  WindowLowering(Op& op, Rewriter& rw)
      : op_(op),
        rw_(rw),
        b_(rw),
        tree_(rw, *op.regions[0]),
        a_(op.as<WindowAttrs>()),
        out_(op.type().dims) {
    const auto n = static_cast<ptrdiff_t>(op.results.size());
    x_.assign(op.operands.begin(), op.operands.begin() + n);
    init_.assign(op.operands.begin() + n, op.operands.end());
    // 8 and 16 bits: wrapping sums have the same low bits in 32.
    const Elem e = op.type().elem;
    if (tree_.simple() && is_integer(e) && elem_bytes(e) < 4) {
      const Elem wide = is_signed(e) ? Elem::kI32 : Elem::kU32;
      x_[0] = b_.convert(x_[0], wide);
      init_[0] = b_.convert(init_[0], wide);
    }
  }

  Arrays run() {
    for (size_t d = 0; d < out_.size(); ++d) {
      if (a_.base_dilation[d] > 1 && a_.stride[d] == 1 && a_.window_dilation[d] == 1 &&
          tree_.simple() && x_[0]->type.dims[d] > 0) {
        dilated_dim(d);
      } else {
        lengthen(d);
      }
    }
    pad();
    reduce_whole_dims();
    for (size_t d = out_.size(); d-- > 0;) {
      if (a_.size[d] >= kLargeWindow && a_.window_dilation[d] == 1 &&
          (out_[d] == 1 || a_.stride[d] >= a_.size[d])) {
        reduce_blocks(d);
      }
    }
    int64_t taps = 1;
    for (const int64_t s : a_.size) {
      taps *= s;
    }
    if (taps > std::min(kMaxTaps, tree_.radix() + 4)) {
      for (size_t d = out_.size(); d-- > 0;) {
        if (a_.size[d] > 1) {
          one_dim(d);
        }
      }
    }
    Arrays out = tree_.with_initial(init_, fold_taps());
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = b_.convert(out[i], op_.type(i).elem);
    }
    return out;
  }

 private:
  // Where the window of every position reaches beyond the data on one side, it may be made longer
  // there: to a size that steps of the radix cover exactly.
  void lengthen(size_t d) {
    const int64_t k = a_.size[d], r = tree_.radix();
    if (k <= r || a_.stride[d] != 1 || a_.window_dilation[d] != 1) {
      return;
    }
    const int64_t in = op_.operand_type(0).dims[d];
    const int64_t data = in == 0 ? 0 : (in - 1) * a_.base_dilation[d] + 1;
    int64_t step = 1;
    while (step * r < k) {
      step *= r;
    }
    const int64_t size = (k + step - 1) / step * step;
    if (a_.pad_low[d] >= out_[d] - 1) {
      a_.pad_low[d] += size - k;
    } else if (k >= a_.pad_low[d] + data) {
      a_.pad_high[d] += size - k;
    } else {
      return;
    }
    a_.size[d] = size;
  }

  // Positions over a dilated input (gradients of pools), cut into (element, phase): a window meets
  // the same elements in every phase, but which of them are inside depends on the phase.
  void dilated_dim(size_t d) {
    const auto dim = static_cast<int64_t>(d);
    const int64_t b = a_.base_dilation[d], low = a_.pad_low[d], size = a_.size[d];
    const int64_t n = (out_[d] + b - 1) / b;
    const auto floor_div = [b](int64_t x) { return x >= 0 ? x / b : -((b - 1 - x) / b); };
    const int64_t first = -floor_div(low), last = floor_div(size - 1 - low + b - 1);
    const Dims zero(out_.size(), 0);
    const int64_t before = std::max<int64_t>(-first, 0);
    const int64_t behind = std::max<int64_t>(n + last - x_[0]->type.dims[d], 0);
    const Elem e = x_[0]->type.elem;
    Value* x = b_.pad(x_[0], rw_.constant(identity_of(*tree_.simple(), {e, {}})),
                      with_dim(zero, dim, before), with_dim(zero, dim, behind));
    Dims domain = with_dim(x->type.dims, dim, n), where;
    domain.insert(domain.begin() + dim + 1, b);
    for (int64_t i = 0; i < static_cast<int64_t>(out_.size()); ++i) {
      where.push_back(i <= dim ? i : i + 1);
    }
    Value* nothing = rw_.constant(identity_of(*tree_.simple(), {e, domain}));
    Value* phase = b_.iota({Elem::kI32, domain}, dim + 1);
    Value* sum = nullptr;
    for (int64_t i = first; i <= last; ++i) {
      Value* part = b_.broadcast(b_.slice_dim(x, dim, before + i, before + i + n), domain, where);
      const int64_t tap = i * b + low;  // of phase 0; it falls by one a phase
      const auto bound = [&](int64_t v) { return b_.splat_int(phase->type, v); };
      if (tap - b + 1 < 0) {
        part = b_.select(b_.compare(CompareDirection::kLe, phase, bound(tap)), part, nothing);
      }
      if (tap >= size) {
        part =
            b_.select(b_.compare(CompareDirection::kGt, phase, bound(tap - size)), part, nothing);
      }
      sum = sum == nullptr ? part : b_.binary(*tree_.simple(), sum, part);
    }
    Value* flat = b_.reshape(sum == nullptr ? nothing : sum, with_dim(x->type.dims, dim, n * b));
    x_[0] = b_.slice_dim(flat, dim, 0, out_[d]);
    a_.pad_low[d] = a_.pad_high[d] = 0;
    a_.base_dilation[d] = 1;
    done(d);
  }

  // Padding counts for nothing in the reductions that the vector unit knows; any other body gets
  // the initial value, as the specification says.
  void pad() {
    Dims interior;
    for (const int64_t dilation : a_.base_dilation) {
      interior.push_back(dilation - 1);
    }
    for (size_t i = 0; i < x_.size(); ++i) {
      Value* value = tree_.simple()
                         ? rw_.constant(identity_of(*tree_.simple(), {x_[i]->type.elem, {}}))
                         : init_[i];
      x_[i] = b_.pad(x_[i], value, a_.pad_low, a_.pad_high, interior);
    }
  }

  // Dimensions with one position of the window: one reduction over all of them.
  void reduce_whole_dims() {
    Dims dims, limit = x_[0]->type.dims;
    int64_t count = 1;
    for (size_t d = 0; d < out_.size(); ++d) {
      if (out_[d] == 1 && a_.size[d] > 1 && a_.window_dilation[d] == 1) {
        dims.push_back(static_cast<int64_t>(d));
        count *= a_.size[d];
        limit[d] = a_.size[d];
      }
    }
    if (count < kLargeWindow || !tree_.simple()) {
      return;
    }
    const Type scalar{x_[0]->type.elem, {}};
    Value* x = b_.slice(x_[0], Dims(limit.size(), 0), limit);
    x = b_.reduce(*tree_.simple(), x, rw_.constant(identity_of(*tree_.simple(), scalar)), dims);
    for (const int64_t d : dims) {
      limit[static_cast<size_t>(d)] = 1;
      done(static_cast<size_t>(d));
    }
    x_[0] = b_.reshape(x, limit);
  }

  // The elements of a window get a dimension of their own, which a reduction removes.
  void reduce_blocks(size_t d) {
    const auto dim = static_cast<int64_t>(d);
    const int64_t size = a_.size[d];
    const int64_t pitch = out_[d] == 1 ? size : a_.stride[d];
    const Dims zero(out_.size(), 0);
    for (Value*& v : x_) {
      const int64_t missing = out_[d] * pitch - v->type.dims[d];
      if (missing > 0) {  // behind the last window
        v = b_.pad(v, rw_.constant(zero_of({v->type.elem, {}})), zero,
                   with_dim(zero, dim, missing));
      }
      v = b_.slice_dim(v, dim, 0, out_[d] * pitch);
      Dims cut = v->type.dims;
      cut[d] = out_[d];
      cut.insert(cut.begin() + dim + 1, pitch);
      v = b_.slice_dim(b_.reshape(v, cut), dim + 1, 0, size);
    }
    if (tree_.simple()) {
      const Type scalar{x_[0]->type.elem, {}};
      x_[0] = b_.reduce(*tree_.simple(), x_[0], rw_.constant(identity_of(*tree_.simple(), scalar)),
                        {dim + 1});
    } else {
      x_ = tree_.reduce(x_, dim + 1);
    }
    done(d);
  }

  static Dense zero_of(const Type& type) {
    return is_float(type.elem) ? make_splat(type, 0) : make_splat_int(type, 0);
  }

  void done(size_t d) { a_.size[d] = a_.stride[d] = a_.window_dilation[d] = 1; }

  struct Tap {
    Arrays x;
    int64_t offset;  // along the dimension
  };

  // Arrays and offsets whose fold is the window of `size` elements, ascending.
  std::vector<Tap> taps_of(const Arrays& x, size_t d, int64_t size, int64_t dilation) {
    const int64_t r = tree_.radix();
    std::vector<Tap> out;
    if (size <= r) {
      for (int64_t t = 0; t < size; ++t) {
        out.push_back({x, t * dilation});
      }
      return out;
    }
    Arrays base;
    const int64_t n = x[0]->type.dims[d] - (r - 1) * dilation;
    for (int64_t t = 0; t < r; ++t) {
      const Arrays part = cut(x, d, t * dilation, n, 1);
      base = t == 0 ? part : tree_.combine(base, part);
    }
    const int64_t blocks = size / r;
    out = taps_of(base, d, blocks, r * dilation);
    for (int64_t t = blocks * r; t < size; ++t) {
      out.push_back({x, t * dilation});
    }
    return out;
  }

  // `n` elements along dimension `d` from `start`.
  Arrays cut(const Arrays& x, size_t d, int64_t start, int64_t n, int64_t stride) {
    Arrays out;
    for (Value* v : x) {
      out.push_back(
          b_.slice_dim(v, static_cast<int64_t>(d), start, start + (n - 1) * stride + 1, stride));
    }
    return out;
  }

  void one_dim(size_t d) {
    Arrays acc;
    for (const Tap& tap : taps_of(x_, d, a_.size[d], a_.window_dilation[d])) {
      const Arrays part = cut(tap.x, d, tap.offset, out_[d], a_.stride[d]);
      acc = acc.empty() ? part : tree_.combine(acc, part);
    }
    x_ = acc;
    done(d);
  }

  // All taps that are left, row by row.
  Arrays fold_taps() {
    Dims at(out_.size(), 0);
    Arrays acc;
    do {
      Arrays part = x_;
      for (size_t d = 0; d < at.size(); ++d) {
        part = cut(part, d, at[d] * a_.window_dilation[d], out_[d], a_.stride[d]);
      }
      acc = acc.empty() ? part : tree_.combine(acc, part);
    } while (advance(at, a_.size));
    return acc;
  }

  Op& op_;
  Rewriter& rw_;
  Builder b_;
  ReduceTree tree_;
  WindowAttrs a_;
  const Dims out_;
  Arrays x_, init_;
};

}  // namespace

std::vector<Value*> reduce_window(Op& op, Rewriter& rw) {
  if (op.type().count() == 0) {
    Builder b(rw);
    Arrays out;
    for (const auto& r : op.results) {
      out.push_back(b.splat_int(r->type, 0));
    }
    return out;
  }
  return WindowLowering(op, rw).run();
}

}  // namespace tpu::compiler::legalization
