// convolution as contractions over window views: y = dot_general(window(pad(x)), w).
// Per spatial dimension a tap meets an element where i * ld = o * s + k * rd - pad (ld, rd: lhs and
// rhs dilation, s: stride). With P = ld/gcd(s,ld) and Q = ld/gcd(rd,ld), output positions
// o = o0 + P*u of one phase meet the taps k = k0 + Q*v, at i = i0 + u*(P*s/ld) + v*(Q*rd/ld): a
// plain strided window. So no product with a zero that dilation inserts is ever made. Phases are
// interleaved at the end. Groups are batch dimensions of the contraction; those of one channel
// (depthwise convolutions and their gradients) run on the vector unit. There a channel is repeated
// for each of its features.
#include <algorithm>
#include <numeric>
#include <optional>

#include "legalize/contraction_parts.hpp"
#include "legalize/legalize.hpp"

namespace tpu::compiler::legalization {
namespace {

constexpr int64_t kMaxUnrolledTaps = 64;     // of a depthwise convolution on the vector unit
constexpr int64_t kMaxUnrolledResults = 64;  // a channel, of the gradient of its kernel
constexpr size_t kMostApart = 4;             // dims of a sum whose loops stay apart
// A tap of a group takes the matrix unit a cycle for each position, the vector unit 1/kFeatureTaps
// for each feature, and to repeat a channel takes kRepeatTaps such taps.
constexpr int64_t kFeatureTaps = 256, kRepeatTaps = 16;
constexpr int64_t kMostGradientFeatures = 16, kMostSummedChannels = 16;

size_t at(int64_t d) { return static_cast<size_t>(d); }

// One phase of one spatial dimension. No taps: nothing but zeros.
struct Phase {
  int64_t first_tap = 0, taps = 0;
  int64_t positions = 0;
  int64_t first = 0;  // input index of position 0, tap 0; may lie outside
  int64_t tap_step = 1, position_step = 1;

  int64_t reach() const { return (positions - 1) * position_step + (taps - 1) * tap_step + 1; }
};

struct Axis {
  int64_t in = 0, kernel = 0, out = 0, stride = 1, pad = 0, ld = 1, rd = 1;

  int64_t phases() const { return ld / std::gcd(stride, ld); }
  int64_t tap_period() const { return ld / std::gcd(rd, ld); }

  Phase phase(int64_t o0) const {
    Phase p;
    p.positions = o0 < out ? (out - o0 + phases() - 1) / phases() : 0;
    p.position_step = phases() * stride / ld;
    p.tap_step = tap_period() * rd / ld;
    for (int64_t k0 = 0; k0 < std::min(tap_period(), kernel); ++k0) {
      const int64_t i = o0 * stride + k0 * rd - pad;
      if (i % ld == 0) {
        p.first_tap = k0;
        p.taps = (kernel - k0 + tap_period() - 1) / tap_period();
        p.first = i / ld;
        break;
      }
    }
    return p;
  }
};

class Lowering {
 public:
  Lowering(const Op& op, Rewriter& rw) : op_(op), a_(op.as<ConvAttrs>()), b_(rw), rw_(rw) {}

  Value* run() {
    if (op_.type().count() == 0 || op_.operand_type(0).count() == 0 ||
        op_.operand_type(1).count() == 0) {
      return b_.splat_int(op_.type(), 0);
    }
    prepare();
    std::vector<Phase> chosen;
    Value* all = interleave(chosen);
    return arrange(all);
  }

 private:
  int64_t given_groups() const { return a_.feature_groups * a_.batch_groups; }
  int64_t groups() const { return given_groups() * repeats_; }
  size_t spatial() const { return a_.input_spatial.size(); }

  void prepare() {
    const auto in = contraction_operands(b_, op_.operands[0], op_.operands[1], op_.type().elem);
    x_ = in[0];
    w_ = in[1];
    for (size_t i = 0; i < spatial(); ++i) {
      axes_.push_back({x_->type.dims[at(a_.input_spatial[i])],
                       w_->type.dims[at(a_.kernel_spatial[i])],
                       op_.type().dims[at(a_.output_spatial[i])], a_.window_stride[i],
                       a_.pad_low[i], a_.lhs_dilation[i], a_.rhs_dilation[i]});
    }
    Dims reversed;
    for (size_t i = 0; i < spatial(); ++i) {
      if (a_.window_reversal[i] && axes_[i].kernel > 1) {
        reversed.push_back(a_.kernel_spatial[i]);
      }
    }
    if (!reversed.empty()) {
      w_ = b_.reverse(w_, reversed);
    }
    const Precision precision = joint_precision(a_.lhs_precision, a_.rhs_precision);
    exact_ = precision != Precision::kDefault;
    on_vector_unit_ = fits_vector_unit();
    if (on_vector_unit_) {
      repeats_ = features_of_group();
      x_ = repeated(x_, group_dim(), repeats_);
    }
    if (exact_ && !on_vector_unit_ && is_float(op_.type().elem) &&
        (x_->type.elem == Elem::kF32 || w_->type.elem == Elem::kF32)) {
      const auto parts = stack_parts(b_, x_, w_, precision);
      x_ = parts[0];
      w_ = parts[1];
      lead_ = 1;
    }
  }

  bool is_filter_gradient() const { return a_.batch_groups > 1; }  // of those on the vector unit

  int64_t features_of_group() const {
    return w_->type.dims[at(a_.kernel_output_feature)] / given_groups();
  }

  // Element i of dim `dim` becomes elements i * times, i * times + 1, ...
  Value* repeated(Value* v, int64_t dim, int64_t times) {
    if (times == 1) {
      return v;
    }
    Dims dims = v->type.dims, where(dims.size());
    dims.insert(dims.begin() + dim + 1, times);
    std::iota(where.begin(), where.begin() + dim + 1, 0);
    std::iota(where.begin() + dim + 1, where.end(), dim + 2);
    return join(b_.broadcast(v, dims, where), dim);
  }

  // One channel a group, and few taps or, in the gradient of the kernel, few results. Features of a
  // group are so few that its channel, repeated for each, takes less than a product of one column.
  // Or one feature of few channels, as in the gradient of the input of such a convolution.
  bool fits_vector_unit() const {
    const auto in = [&](int64_t d) { return x_->type.dims[at(d)]; };
    if (given_groups() == 1 || !is_float(op_.type().elem) || op_.type().elem == Elem::kF64) {
      return false;
    }
    int64_t taps = 1, results = 1;
    for (const Axis& axis : axes_) {
      taps *= (axis.kernel + axis.tap_period() - 1) / axis.tap_period();
      results *= (axis.out + axis.phases() - 1) / axis.phases();
    }
    const int64_t features = features_of_group();
    if (a_.batch_groups == 1) {
      const int64_t channels = in(a_.input_feature) / given_groups();
      const bool few = channels == 1
                           ? features * (kRepeatTaps + taps) <= kFeatureTaps * taps
                           : features == 1 && channels <= std::min(8 * taps, kMostSummedChannels);
      return taps <= kMaxUnrolledTaps && few;
    }
    return a_.feature_groups == 1 && in(a_.input_batch) == given_groups() &&
           results <= kMaxUnrolledResults && x_->type.dims.size() <= kMostApart &&
           features <= kMostGradientFeatures;
  }

  // All phases of all dimensions: [group][batch, positions in the order of the input's dims][out
  // features], the canonical order of this file. On the vector unit the order is the input's, in
  // which the group's dim has the groups and the summed one, if there is one, the one batch.
  Value* interleave(std::vector<Phase>& chosen) {
    const size_t d = chosen.size();
    if (d == spatial()) {
      return one(chosen);
    }
    const Axis& axis = axes_[d];
    const int64_t count = std::min(axis.phases(), axis.out);
    const int64_t longest = (axis.out + axis.phases() - 1) / axis.phases();
    std::vector<Value*> list;
    std::optional<int64_t> only;  // the phase that is not all zeros, if there is but one
    int64_t filled = 0;
    for (int64_t o0 = 0; o0 < count; ++o0) {
      if (axis.phase(o0).taps > 0) {
        only = o0;
        ++filled;
      }
    }
    for (int64_t o0 = 0; o0 < count; ++o0) {
      if (filled == 1 && o0 != *only) {
        continue;
      }
      chosen.push_back(axis.phase(o0));
      Value* v = interleave(chosen);
      chosen.pop_back();
      list.push_back(v);
    }
    const int64_t dim = position_dim(d);
    if (count == 1) {
      return list[0];
    }
    if (filled == 1) {  // zeros between
      const Dims none(list[0]->type.dims.size(), 0);
      const int64_t n = list[0]->type.dims[at(dim)];
      const int64_t length = *only + (n - 1) * axis.phases() + 1;
      return b_.pad(list[0], b_.splat_int({list[0]->type.elem, {}}, 0), with_dim(none, dim, *only),
                    with_dim(none, dim, axis.out - length), with_dim(none, dim, axis.phases() - 1));
    }
    if (count < axis.phases()) {  // one position each
      return b_.concatenate(list, dim);
    }
    for (Value*& v : list) {
      const Dims none(v->type.dims.size(), 0);
      v = b_.pad(v, b_.splat_int({v->type.elem, {}}, 0), none,
                 with_dim(none, dim, longest - v->type.dims[at(dim)]));
      v = split(v, dim, v->type.dims[at(dim)], 1);
    }
    Value* joined = join(b_.concatenate(list, dim + 1), dim);
    return b_.slice_dim(joined, dim, 0, axis.out);
  }

  // Dims of the canonical order.
  int64_t group_dim() const { return a_.batch_groups > 1 ? a_.input_batch : a_.input_feature; }
  int64_t batch_dim() const {
    return on_vector_unit_ && is_filter_gradient() ? a_.input_feature
                                                   : canonical_dim(a_.input_batch);
  }
  int64_t canonical_dim(int64_t input_dim) const {
    if (on_vector_unit_) {
      return input_dim;
    }
    int64_t dim = 1;
    for (int64_t d = 0; d < input_dim; ++d) {
      dim += d == a_.input_feature ? 0 : 1;
    }
    return dim;
  }
  int64_t position_dim(size_t axis) const { return canonical_dim(a_.input_spatial[axis]); }

  // Padded (and cropped) so that position 0 and tap 0 of every dim stand at index 0.
  Value* padded(const std::vector<Phase>& phases) {
    const Dims& dims = x_->type.dims;
    Dims start(dims.size(), 0), limit = dims, low(dims.size(), 0), high(dims.size(), 0);
    for (size_t i = 0; i < spatial(); ++i) {
      const size_t d = at(a_.input_spatial[i] + lead_);
      const int64_t n = dims[d], first = phases[i].first, length = phases[i].reach();
      start[d] = std::clamp<int64_t>(first, 0, n);
      limit[d] = std::clamp<int64_t>(first + length, start[d], n);
      low[d] = std::min(std::max<int64_t>(-first, 0), length);
      high[d] = length - low[d] - (limit[d] - start[d]);
    }
    Value* v = x_;
    if (start != Dims(dims.size(), 0) || limit != dims) {
      v = b_.slice(v, start, limit);
    }
    if (v->type.count() == 0) {
      Type type = v->type;
      for (size_t d = 0; d < dims.size(); ++d) {
        type.dims[d] += low[d] + high[d];
      }
      return b_.splat_int(type, 0);
    }
    return b_.pad(v, b_.splat_int({v->type.elem, {}}, 0), low, high);
  }

  Value* kernel(const std::vector<Phase>& phases) {
    Dims start(w_->type.dims.size(), 0), limit = w_->type.dims, step(w_->type.dims.size(), 1);
    bool all = true;
    for (size_t i = 0; i < spatial(); ++i) {
      const size_t d = at(a_.kernel_spatial[i] + lead_);
      start[d] = phases[i].first_tap;
      step[d] = axes_[i].tap_period();
      all = all && start[d] == 0 && step[d] == 1;
    }
    return all ? w_ : b_.slice(w_, start, limit, step);
  }

  // A value's dim `dim` as two, [outer][inner].
  Value* split(Value* v, int64_t dim, int64_t outer, int64_t inner) {
    Dims dims;
    for (int64_t d = 0; d < v->type.rank(); ++d) {
      if (d == dim) {
        dims.push_back(outer);
        dims.push_back(inner);
      } else {
        dims.push_back(v->type.dims[at(d)]);
      }
    }
    return b_.reshape(v, dims);
  }
  Value* split_groups(Value* v, int64_t dim) {
    return split(v, dim, groups(), v->type.dims[at(dim)] / groups());
  }
  // Dims `dim` and the one behind it as one.
  Value* join(Value* v, int64_t dim) {
    Dims dims;
    for (int64_t d = 0; d < v->type.rank(); ++d) {
      if (d == dim + 1) {
        dims.back() *= v->type.dims[at(d)];
      } else {
        dims.push_back(v->type.dims[at(d)]);
      }
    }
    return b_.reshape(v, dims);
  }

  Type type_of(const std::vector<Phase>& phases) const {
    Type type{op_.type().elem, {}};
    if (on_vector_unit_) {
      type.dims = x_->type.dims;
      type.dims[at(a_.input_feature)] = is_filter_gradient() ? 1 : groups();
      for (size_t i = 0; i < spatial(); ++i) {
        type.dims[at(a_.input_spatial[i])] = phases[i].positions;
      }
      return type;
    }
    type.dims = {groups()};
    for (int64_t d = 0; d < op_.operand_type(0).rank(); ++d) {
      if (d == a_.input_batch) {
        type.dims.push_back(op_.operand_type(0).dims[at(d)] / a_.batch_groups);
      } else if (d != a_.input_feature) {
        const auto axis = std::find(a_.input_spatial.begin(), a_.input_spatial.end(), d);
        type.dims.push_back(phases[at(axis - a_.input_spatial.begin())].positions);
      }
    }
    type.dims.push_back(op_.operand_type(1).dims[at(a_.kernel_output_feature)] / groups());
    return type;
  }

  Value* one(const std::vector<Phase>& phases) {
    const Type type = type_of(phases);
    for (const Phase& p : phases) {
      if (p.taps == 0 || p.positions == 0) {
        return b_.splat_int(type, 0);
      }
    }
    Value* x = padded(phases);
    Value* w = kernel(phases);
    if (!on_vector_unit_) {
      return contract(x, w, phases, type);
    }
    return is_filter_gradient() ? filter_gradient(x, w, phases, type)
                                : depthwise(x, w, phases, type);
  }

  // dims of x: [parts] and the input's, the grouped one split; window: these as positions, then as
  // taps.
  Value* contract(Value* x, Value* w, const std::vector<Phase>& phases, const Type& type) {
    const bool grouped = groups() > 1;
    const auto x_dim = [&](int64_t d) { return d + lead_ + (grouped && d >= group_dim() ? 1 : 0); };
    const auto w_dim = [&](int64_t d) {
      return d + lead_ + (grouped && d >= a_.kernel_output_feature ? 1 : 0);
    };
    if (grouped) {
      x = split_groups(x, group_dim() + lead_);
      w = split_groups(w, a_.kernel_output_feature + lead_);
    }
    const auto rank = x->type.rank();
    Dims size, stride, dilation;
    for (int64_t d = 0; d < rank; ++d) {
      Phase p{0, 1, 1, 0, 1, 1};  // dims without taps
      for (size_t i = 0; i < spatial(); ++i) {
        p = x_dim(a_.input_spatial[i]) == d ? phases[i] : p;
      }
      size.push_back(p.taps);
      stride.push_back(p.position_step);
      dilation.push_back(p.tap_step);
    }
    DotAttrs dot;
    if (grouped) {
      dot.lhs_batch = {group_dim() + lead_};
      dot.rhs_batch = {a_.kernel_output_feature + lead_};
    }
    if (lead_ > 0) {
      dot.lhs_contract.push_back(0);
      dot.rhs_contract.push_back(0);
    }
    for (size_t i = 0; i < spatial(); ++i) {
      dot.lhs_contract.push_back(rank + x_dim(a_.input_spatial[i]));
      dot.rhs_contract.push_back(w_dim(a_.kernel_spatial[i]));
    }
    dot.lhs_contract.push_back(x_dim(a_.input_feature));
    dot.rhs_contract.push_back(w_dim(a_.kernel_input_feature));
    Value* windows = b_.window(x, size, stride, dilation);
    // Dims of one tap (of batch, feature, group and parts) are free ones behind the positions.
    const size_t single = at(rank) - spatial(), skip = grouped ? 0 : 1;
    Type result{type.elem, Dims(type.dims.size() - skip + single, 1)};
    std::copy(type.dims.begin() + static_cast<ptrdiff_t>(skip), type.dims.end() - 1,
              result.dims.begin());
    result.dims.back() = type.dims.back();
    return b_.reshape(rw_.make(Kind::kDotGeneral, {windows, w}, result, dot), type.dims);
  }

  // An operand as the vector unit multiplies it: rounded as the matrix unit would.
  Value* factor(Value* v) {
    return b_.convert(exact_ ? v : b_.convert(v, Elem::kBf16), Elem::kF32);
  }

  // A chain of multiply and add for each channel, taps ascending, then the sum over the channels of
  // a group.
  Value* depthwise(Value* x, Value* w, const std::vector<Phase>& phases, const Type& type) {
    w = factor(w);
    Dims dims = type.dims;
    dims[at(a_.input_feature)] = x->type.dims[at(a_.input_feature)];
    const int64_t channels = dims[at(a_.input_feature)] / groups();
    const bool features_last = a_.kernel_output_feature > a_.kernel_input_feature;
    std::vector<int64_t> tap(spatial(), 0);
    Value* sum = nullptr;
    for (bool more = true; more;) {
      Dims start(at(x->type.rank()), 0), limit = x->type.dims, step(at(x->type.rank()), 1);
      Dims w_start(at(w->type.rank()), 0), w_limit = w->type.dims;
      for (size_t i = 0; i < spatial(); ++i) {
        const size_t d = at(a_.input_spatial[i]), k = at(a_.kernel_spatial[i]);
        start[d] = tap[i] * phases[i].tap_step;
        limit[d] = start[d] + (phases[i].positions - 1) * phases[i].position_step + 1;
        step[d] = phases[i].position_step;
        w_start[k] = tap[i];
        w_limit[k] = tap[i] + 1;
      }
      Value* a = factor(b_.slice(x, start, limit, step));
      Value* c = b_.slice(w, w_start, w_limit);
      if (channels > 1 && features_last) {
        c = b_.transpose(b_.reshape(c, {channels, groups()}), {1, 0});
      }
      c = b_.reshape(c, {groups() * channels});
      Value* product = b_.mul(a, b_.broadcast(c, dims, {a_.input_feature}));
      sum = sum == nullptr ? b_.add(product, b_.zeros_like(product)) : b_.add(sum, product);
      size_t i = spatial();
      while (i > 0 && ++tap[i - 1] == phases[i - 1].taps) {
        tap[--i] = 0;
      }
      more = i > 0;
    }
    if (channels > 1) {
      // Channels in front of all other dims: a lane for each group.
      Value* parts = split_groups(sum, a_.input_feature);
      Dims order(dims.size() + 1);
      std::iota(order.begin(), order.end(), 0);
      std::rotate(order.begin(), order.begin() + a_.input_feature + 1,
                  order.begin() + a_.input_feature + 2);
      parts = b_.transpose(parts, order);
      sum = b_.reduce(Kind::kAdd, parts, b_.splat_int({Elem::kF32, {}}, 0), {0});
    }
    return b_.convert(sum, type.elem);
  }

  // One channel a group, the images as features: for each result a sum of products over images and
  // taps, which are the positions of the convolution whose kernel gets this gradient. All results
  // read the same arrays in one kernel, where loops that were merged could not read them shifted.
  Value* filter_gradient(Value* x, Value* w, const std::vector<Phase>& phases, const Type& type) {
    Dims perm(at(x->type.rank())), summed;
    std::vector<size_t> axes;  // in the order of the input's dims
    for (int64_t d = 0; d < x->type.rank(); ++d) {
      const auto axis = std::find(a_.input_spatial.begin(), a_.input_spatial.end(), d);
      if (axis != a_.input_spatial.end()) {
        axes.push_back(at(axis - a_.input_spatial.begin()));
      }
      perm[at(d)] = d == a_.input_batch     ? a_.kernel_output_feature
                    : d == a_.input_feature ? a_.kernel_input_feature
                                            : a_.kernel_spatial[axes.back()];
      if (d != a_.input_batch) {
        summed.push_back(d);
      }
    }
    Value* other = factor(b_.transpose(w, perm));
    std::vector<Value*> sums;
    std::vector<int64_t> position(spatial(), 0);
    for (bool more = true; more;) {
      Dims start(at(x->type.rank()), 0), limit = x->type.dims, step(at(x->type.rank()), 1);
      for (size_t i = 0; i < spatial(); ++i) {
        const size_t d = at(a_.input_spatial[i]);
        start[d] = position[i] * phases[i].position_step;
        limit[d] = start[d] + (phases[i].taps - 1) * phases[i].tap_step + 1;
        step[d] = phases[i].tap_step;
      }
      Value* product = b_.mul(factor(b_.slice(x, start, limit, step)), other);
      Value* sum =
          b_.reduce(Kind::kAdd, product, b_.splat_int({Elem::kF32, {}}, 0), summed, /*apart=*/true);
      sums.push_back(b_.reshape(sum, {1, groups()}));
      size_t i = axes.size();
      while (i > 0 && ++position[axes[i - 1]] == phases[axes[i - 1]].positions) {
        position[axes[--i]] = 0;
      }
      more = i > 0;
    }
    Value* all = b_.convert(sums.size() == 1 ? sums[0] : b_.concatenate(sums, 0), type.elem);
    Dims listed, place(at(x->type.rank()));  // positions, then groups, then the one batch
    for (const size_t i : axes) {
      place[at(a_.input_spatial[i])] = static_cast<int64_t>(listed.size());
      listed.push_back(phases[i].positions);
    }
    place[at(a_.input_batch)] = static_cast<int64_t>(listed.size());
    place[at(a_.input_feature)] = static_cast<int64_t>(listed.size()) + 1;
    listed.insert(listed.end(), {groups(), 1});
    return b_.transpose(b_.reshape(all, listed), place);
  }

  // From the canonical order to the output's dims; groups and features become one dim.
  Value* arrange(Value* v) {
    const int64_t last = v->type.rank() - 1;
    Dims perm, dims;
    for (int64_t d = 0; d < op_.type().rank(); ++d) {
      dims.push_back(op_.type().dims[at(d)]);
      if (d == a_.output_feature && on_vector_unit_) {
        perm.push_back(group_dim());
      } else if (d == a_.output_feature) {
        perm.push_back(0);
        perm.push_back(last);
      } else if (d == a_.output_batch) {
        perm.push_back(batch_dim());
      } else {
        const auto axis = std::find(a_.output_spatial.begin(), a_.output_spatial.end(), d);
        perm.push_back(position_dim(at(axis - a_.output_spatial.begin())));
      }
    }
    if (groups() == 1) {  // without the group's dim of one element
      v = b_.reshape(v, Dims(v->type.dims.begin() + 1, v->type.dims.end()));
      std::erase(perm, 0);
      for (int64_t& p : perm) {
        --p;
      }
    }
    if (!std::is_sorted(perm.begin(), perm.end())) {
      v = b_.transpose(v, perm);
    }
    return b_.reshape(v, dims);
  }

  const Op& op_;
  const ConvAttrs& a_;
  Builder b_;
  Rewriter& rw_;
  Value *x_ = nullptr, *w_ = nullptr;
  int64_t lead_ = 0;    // 1: both operands have a first dim of parts
  bool exact_ = false;  // more than bf16 of the operands is asked for
  bool on_vector_unit_ = false;
  int64_t repeats_ = 1;  // of each channel, on the vector unit
  std::vector<Axis> axes_;
};

}  // namespace

std::vector<Value*> convolution(Op& op, Rewriter& rw) { return {Lowering(op, rw).run()}; }

}  // namespace tpu::compiler::legalization
