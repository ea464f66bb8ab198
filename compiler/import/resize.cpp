// Resizing of images as PyTorch/XLA and TensorFlow ask a TPU for it, by custom calls:
//   ResizeNearest, ResizeBilinear           f32[n,s1,s2,c] -> f32[n,r1,r2,c]
//   ResizeNearestGrad, ResizeBilinearGrad   f32[n,r1,r2,c] -> f32[n,s1,s2,c]
// Their configuration is "AH" with its quotes: align_corners and half_pixel_centers, 0 or 1 each.
// Dimensions 1 and 2 are resized one after the other. Elements that are copied by a whole factor
// are a broadcast, and their gradient a sum; other copies are a gather. What is left is a product
// in highest precision with the matrix of the weights.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "import/import_parts.hpp"

namespace tpu::compiler::frontend {
namespace {

struct ResizeTarget {
  std::string_view name;
  bool bilinear, gradient;
};
constexpr std::array kResizeTargets = std::to_array<ResizeTarget>({
    {"ResizeNearest", false, false},
    {"ResizeNearestGrad", false, true},
    {"ResizeBilinear", true, false},
    {"ResizeBilinearGrad", true, true},
});

constexpr int64_t kMostRows = 1 << 14;  // its matrix of weights has 1 GiB

const ResizeTarget* resize_target(std::string_view name) {
  const auto* const found = std::ranges::find(kResizeTargets, name, &ResizeTarget::name);
  return found == kResizeTargets.end() ? nullptr : found;
}

// What an element of the resized dimension is made of: (1 - weight) x[lower] + weight x[upper].
struct Taps {
  int64_t lower = 0, upper = 0;
  float weight = 0;
};

class Resize {
 public:
  Resize(const OpReader& reader, const ResizeTarget& target, Type result, Region& to)
      : reader_(reader), target_(target), result_(std::move(result)), to_(to) {
    const std::string config = reader.text("backend_config");
    const auto digit = [](char c) { return c == '0' || c == '1'; };
    if (config.size() != 4 || config[0] != '"' || !digit(config[1]) || !digit(config[2]) ||
        config[3] != '"') {
      reader.fail(name() +
                  ": the configuration must be align_corners and half_pixel_centers, such as "
                  "'\"01\"', not '" +
                  config + "'");
    }
    align_ = config[1] == '1';
    half_ = config[2] == '1';
  }

  Value* make(Value* x) {
    check(x->type);
    const bool sums = target_.bilinear || target_.gradient;
    if (sums && !is_float(x->type.elem)) {
      reader_.fail(name() + " of " + to_string(x->type) + ": expected f32, bf16 or f64");
    }
    Value* y = sums && x->type.elem == Elem::kBf16 ? convert(x, Elem::kF32) : x;
    for (const size_t dim : {size_t{1}, size_t{2}}) {
      y = along(y, dim);
    }
    return convert(y, result_.elem);
  }

 private:
  std::string name() const { return "custom_call target '" + std::string(target_.name) + "'"; }

  void check(const Type& x) const {
    const bool images = x.rank() == 4 && result_.rank() == 4 && x.elem == result_.elem &&
                        x.dims[0] == result_.dims[0] && x.dims[3] == result_.dims[3];
    if (!images || std::ranges::min(x.dims) == 0 || std::ranges::min(result_.dims) == 0) {
      reader_.fail(name() + " from " + to_string(x) + " to " + to_string(result_) +
                   ": expected arrays of images of rank 4 that differ in dimensions 1 and 2");
    }
    if (std::max({x.dims[1], x.dims[2], result_.dims[1], result_.dims[2]}) > kMostRows) {
      reader_.fail(name() + " from " + to_string(x) + " to " + to_string(result_) +
                   ": an image may have at most " + std::to_string(kMostRows) +
                   " rows and columns; resize parts of it");
    }
  }

  Taps taps(int64_t at, int64_t small, int64_t large) const {
    const bool corners = align_ && large > 1;
    const float scale = corners ? static_cast<float>(small - 1) / static_cast<float>(large - 1)
                                : static_cast<float>(small) / static_cast<float>(large);
    const auto place = static_cast<float>(at);
    const float source = half_ ? (place + 0.5F) * scale : place * scale;
    if (!target_.bilinear) {
      const float nearest = align_ ? std::round(source) : std::floor(source);
      const int64_t i = std::min(static_cast<int64_t>(nearest), small - 1);
      return {i, i, 0};
    }
    const float in = half_ ? source - 0.5F : source;
    const float below = std::floor(in);
    const auto i = static_cast<int64_t>(below);
    return {std::clamp<int64_t>(i, 0, small - 1), std::clamp<int64_t>(i + 1, 0, small - 1),
            in - below};
  }

  Value* along(Value* x, size_t dim) {
    const int64_t small = target_.gradient ? result_.dims[dim] : x->type.dims[dim];
    const int64_t large = target_.gradient ? x->type.dims[dim] : result_.dims[dim];
    if (small == large) {
      return x;
    }
    std::vector<Taps> all;
    for (int64_t i = 0; i < large; ++i) {
      all.push_back(taps(i, small, large));
    }
    const int64_t factor = large / small;
    const bool whole = !target_.bilinear && large % small == 0 &&
                       std::ranges::all_of(all, [&, i = int64_t{0}](const Taps& t) mutable {
                         return t.lower == i++ / factor;
                       });
    if (whole) {
      return target_.gradient ? summed(x, dim, factor) : repeated(x, dim, factor);
    }
    return target_.bilinear || target_.gradient ? product(x, dim, small, all) : picked(x, dim, all);
  }

  // Each element `factor` times.
  Value* repeated(Value* x, size_t dim, int64_t factor) {
    Type wide = x->type;
    wide.dims.insert(wide.dims.begin() + static_cast<int64_t>(dim) + 1, factor);
    Dims places;
    for (int64_t d = 0; d < wide.rank(); ++d) {
      if (d != static_cast<int64_t>(dim) + 1) {
        places.push_back(d);
      }
    }
    return reshape(op(Kind::kBroadcastInDim, {x}, wide, DimsAttrs{places}), dim,
                   x->type.dims[dim] * factor);
  }

  Value* summed(Value* x, size_t dim, int64_t factor) {
    Type apart = x->type;
    apart.dims[dim] /= factor;
    const Type sums = apart;
    const auto summed_dim = static_cast<int64_t>(dim) + 1;
    apart.dims.insert(apart.dims.begin() + summed_dim, factor);
    const Type scalar{x->type.elem, {}};
    Value* zero = op(Kind::kConstant, {}, scalar, ConstantAttrs{make_splat(scalar, 0)});
    Value* total = op(Kind::kReduce, {op(Kind::kReshape, {x}, apart, NoAttrs{}), zero}, sums,
                      DimsAttrs{{summed_dim}});
    add_sum_region(*total->def, scalar, reader_.loc());
    return total;
  }

  Value* picked(Value* x, size_t dim, const std::vector<Taps>& all) {
    std::vector<int32_t> indices;
    for (const Taps& t : all) {
      indices.push_back(static_cast<int32_t>(t.lower));
    }
    const auto entries = static_cast<int64_t>(all.size());
    const Type list{Elem::kI32, {entries, 1}};
    Type type = x->type;
    type.dims[dim] = entries;
    GatherAttrs a;
    for (int64_t d = 0; d < type.rank(); ++d) {
      if (d != static_cast<int64_t>(dim)) {
        a.offset_dims.push_back(d);
      }
    }
    a.collapsed_slice_dims = a.start_index_map = {static_cast<int64_t>(dim)};
    a.slice_sizes = x->type.dims;
    a.slice_sizes[dim] = 1;
    a.index_vector_dim = 1;
    a.indices_are_sorted = true;
    return op(Kind::kGather,
              {x, op(Kind::kConstant, {}, list, ConstantAttrs{make_dense_of(list, indices)})}, type,
              std::move(a));
  }

  Value* product(Value* x, size_t dim, int64_t small, const std::vector<Taps>& all) {
    const auto large = static_cast<int64_t>(all.size());
    std::vector<float> weights(static_cast<size_t>(small * large));
    for (int64_t i = 0; i < large; ++i) {
      const Taps& t = all[static_cast<size_t>(i)];
      weights[static_cast<size_t>(i * small + t.lower)] += 1 - t.weight;
      weights[static_cast<size_t>(i * small + t.upper)] += t.weight;
    }
    const Type matrix{Elem::kF32, {large, small}};
    Value* w =
        convert(op(Kind::kConstant, {}, matrix, ConstantAttrs{make_dense_of(matrix, weights)}),
                x->type.elem);
    Type made{x->type.elem, {}};
    Dims order;  // the resized dimension comes last
    for (size_t d = 0; d < x->type.dims.size(); ++d) {
      order.push_back(d < dim    ? static_cast<int64_t>(d)
                      : d == dim ? x->type.rank() - 1
                                 : static_cast<int64_t>(d) - 1);
      if (d != dim) {
        made.dims.push_back(x->type.dims[d]);
      }
    }
    made.dims.push_back(target_.gradient ? small : large);
    DotAttrs a;
    a.lhs_contract = {static_cast<int64_t>(dim)};
    a.rhs_contract = {target_.gradient ? 0 : 1};
    a.lhs_precision = a.rhs_precision = Precision::kHighest;
    Type type = x->type;
    type.dims[dim] = made.dims.back();
    return op(Kind::kTranspose, {op(Kind::kDotGeneral, {x, w}, made, std::move(a))}, type,
              DimsAttrs{order});
  }

  // With one dimension, `dim`, of another size for it and the next one.
  Value* reshape(Value* x, size_t dim, int64_t size) {
    Type type = x->type;
    type.dims.erase(type.dims.begin() + static_cast<int64_t>(dim) + 1);
    type.dims[dim] = size;
    return op(Kind::kReshape, {x}, type, NoAttrs{});
  }

  Value* convert(Value* x, Elem elem) {
    return x->type.elem == elem ? x : op(Kind::kConvert, {x}, {elem, x->type.dims}, NoAttrs{});
  }

  Value* op(Kind kind, std::vector<Value*> operands, Type type, Attrs attrs) {
    return to_
        .append(kind, std::move(operands), {std::move(type)}, std::move(attrs), reader_.loc())
        ->result();
  }

  const OpReader& reader_;
  const ResizeTarget& target_;
  const Type result_;
  Region& to_;
  bool align_ = false, half_ = false;
};

}  // namespace

bool is_resize(std::string_view target) { return resize_target(target) != nullptr; }

Value* convert_resize(const OpReader& reader, const std::vector<Value*>& operands,
                      const std::vector<Type>& results, Region& to) {
  const std::string name = reader.text("call_target_name");
  if (operands.size() != 1 || results.size() != 1) {
    reader.fail("custom_call target '" + name + "' with other operands or results");
  }
  return Resize(reader, *resize_target(name), results[0], to).make(operands[0]);
}

}  // namespace tpu::compiler::frontend
