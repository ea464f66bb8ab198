// Data movement, iota and constants on arrays: each result element is copied from one operand
// element.
#include <algorithm>

#include "ir/elements.hpp"

namespace tpu::compiler::eval {
namespace {

// Calls fn(linear index, coordinates) for every position of `dims` in row-major order.
template <typename Fn>
void for_each_position(const Dims& dims, Fn&& fn) {
  int64_t n = 1;
  for (const int64_t d : dims) {
    n *= d;
  }
  Dims at(dims.size(), 0);
  for (int64_t i = 0; i < n; ++i) {
    fn(i, at);
    advance(at, dims);
  }
}

// result[at] = operand[offset + sum at[d] * step[d]] in elements.
Tensor strided_copy(const Tensor& in, const Type& type, const Dims& step, int64_t offset) {
  Tensor out = make_tensor(type);
  for_each_position(type.dims, [&](int64_t i, const Dims& at) {
    int64_t from = offset;
    for (size_t d = 0; d < at.size(); ++d) {
      from += at[d] * step[d];
    }
    copy_element(in, from, out, i);
  });
  return out;
}

Tensor broadcast(const Op& op, const Tensor& in) {
  const Dims strides = row_major_strides(in.type.dims);
  Dims step(op.type().dims.size(), 0);
  const Dims& dims = op.as<DimsAttrs>().dims;
  for (size_t d = 0; d < dims.size(); ++d) {
    step[static_cast<size_t>(dims[d])] = in.type.dims[d] == 1 ? 0 : strides[d];
  }
  return strided_copy(in, op.type(), step, 0);
}

Tensor transpose(const Op& op, const Tensor& in) {
  const Dims strides = row_major_strides(in.type.dims);
  Dims step;
  for (const int64_t d : op.as<DimsAttrs>().dims) {
    step.push_back(strides[static_cast<size_t>(d)]);
  }
  return strided_copy(in, op.type(), step, 0);
}

Tensor slice(const Op& op, const Tensor& in) {
  const auto& a = op.as<SliceAttrs>();
  const Dims strides = row_major_strides(in.type.dims);
  Dims step;
  int64_t offset = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    step.push_back(strides[d] * a.stride[d]);
    offset += strides[d] * a.start[d];
  }
  return strided_copy(in, op.type(), step, offset);
}

Tensor reverse(const Op& op, const Tensor& in) {
  Dims step = row_major_strides(in.type.dims);
  int64_t offset = 0;
  for (const int64_t d : op.as<DimsAttrs>().dims) {
    const auto i = static_cast<size_t>(d);
    offset += step[i] * (in.type.dims[i] - 1);
    step[i] = -step[i];
  }
  return strided_copy(in, op.type(), step, offset);
}

Tensor window(const Op& op, const Tensor& in) {
  const auto& a = op.as<WindowViewAttrs>();
  const Dims strides = row_major_strides(in.type.dims);
  Dims step;
  for (const Dims* unit : {&a.stride, &a.dilation}) {
    for (size_t d = 0; d < strides.size(); ++d) {
      step.push_back(strides[d] * (*unit)[d]);
    }
  }
  return strided_copy(in, op.type(), step, 0);
}

// Copies all of `in` into `out` at `start` (which fits).
void paste(const Tensor& in, const Dims& start, Tensor& out) {
  const Dims strides = row_major_strides(out.type.dims);
  for_each_position(in.type.dims, [&](int64_t i, const Dims& at) {
    int64_t to = 0;
    for (size_t d = 0; d < at.size(); ++d) {
      to += (start[d] + at[d]) * strides[d];
    }
    copy_element(in, i, out, to);
  });
}

Tensor concatenate(const Op& op, const Tensors& in) {
  Tensor out = make_tensor(op.type());
  const auto dim = static_cast<size_t>(op.as<DimAttrs>().dim);
  Dims start(op.type().dims.size(), 0);
  for (const Tensor* t : in) {
    paste(*t, start, out);
    start[dim] += t->type.dims[dim];
  }
  return out;
}

Tensor pad(const Op& op, const Tensors& in) {
  const auto& a = op.as<PadAttrs>();
  Tensor out = make_tensor(op.type());
  for (int64_t i = 0; i < out.type.count(); ++i) {
    copy_element(*in[1], 0, out, i);
  }
  const Dims strides = row_major_strides(out.type.dims);
  for_each_position(in[0]->type.dims, [&](int64_t i, const Dims& at) {
    int64_t to = 0;
    bool inside = true;
    for (size_t d = 0; d < at.size(); ++d) {
      const int64_t p = a.low[d] + at[d] * (a.interior[d] + 1);
      inside = inside && p >= 0 && p < out.type.dims[d];
      to += p * strides[d];
    }
    if (inside) {
      copy_element(*in[0], i, out, to);
    }
  });
  return out;
}

// Start indices are clamped so that the slice lies inside.
Dims clamped_start(const Tensors& in, size_t first, const Dims& operand, const Dims& size) {
  Dims start;
  for (size_t d = 0; d < operand.size(); ++d) {
    const Tensor& t = *in[first + d];
    int64_t v = int_at(t, 0);
    if (t.type.elem == Elem::kU64 && v < 0) {
      v = operand[d];
    }
    start.push_back(std::clamp<int64_t>(v, 0, operand[d] - size[d]));
  }
  return start;
}

Tensor dynamic_slice(const Op& op, const Tensors& in) {
  const Dims strides = row_major_strides(in[0]->type.dims);
  const Dims start = clamped_start(in, 1, in[0]->type.dims, op.type().dims);
  int64_t offset = 0;
  for (size_t d = 0; d < start.size(); ++d) {
    offset += start[d] * strides[d];
  }
  return strided_copy(*in[0], op.type(), strides, offset);
}

Tensor dynamic_update_slice(const Tensors& in) {
  Tensor out = *in[0];
  paste(*in[1], clamped_start(in, 2, in[0]->type.dims, in[1]->type.dims), out);
  return out;
}

Tensor iota(const Op& op) {
  const Type& t = op.type();
  const auto dim = static_cast<size_t>(op.as<DimAttrs>().dim);
  Tensor out = make_tensor(t);
  std::vector<int64_t> values(static_cast<size_t>(t.count()));
  for_each_position(t.dims,
                    [&](int64_t i, const Dims& at) { values[static_cast<size_t>(i)] = at[dim]; });
  if (is_float(t.elem)) {
    store_floats(std::vector<float>(values.begin(), values.end()), out);
  } else {
    store_ints(values, out);
  }
  return out;
}

}  // namespace

Tensor shape(const Op& op, const Tensors& operands) {
  switch (op.kind) {
    case Kind::kConstant:
      return to_tensor(op.as<ConstantAttrs>().value);
    case Kind::kIota:
      return iota(op);
    case Kind::kBroadcastInDim:
      return broadcast(op, *operands[0]);
    case Kind::kTranspose:
      return transpose(op, *operands[0]);
    case Kind::kReshape:
      return {op.type(), operands[0]->data};
    case Kind::kSlice:
      return slice(op, *operands[0]);
    case Kind::kReverse:
      return reverse(op, *operands[0]);
    case Kind::kWindow:
      return window(op, *operands[0]);
    case Kind::kConcatenate:
      return concatenate(op, operands);
    case Kind::kPad:
      return pad(op, operands);
    case Kind::kDynamicSlice:
      return dynamic_slice(op, operands);
    case Kind::kDynamicUpdateSlice:
      return dynamic_update_slice(operands);
    default:
      throw Error("the interpreter does not support this op", source_name(op.kind), op.loc);
  }
}

}  // namespace tpu::compiler::eval
