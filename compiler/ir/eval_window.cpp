// reduce_window and select_and_scatter, one tap of the window at a time for all positions at once.
// Taps in the padding or between dilated elements count for nothing.
#include <algorithm>

#include "ir/elements.hpp"
#include "ir/lifted_body.hpp"

namespace tpu::compiler::eval {
namespace {

bool any_zero(const Dims& dims) { return std::find(dims.begin(), dims.end(), 0) != dims.end(); }

// Element of the operand under each window for one tap, -1 if there is none.
std::vector<int64_t> elements_under(const WindowAttrs& a, const Dims& tap, const Dims& in,
                                    const Dims& out) {
  const Dims pitch = row_major_strides(in);
  std::vector<int64_t> elements;
  if (any_zero(out)) {
    return elements;
  }
  Dims at(out.size(), 0);
  do {
    int64_t element = 0;
    for (size_t d = 0; d < at.size() && element >= 0; ++d) {
      const int64_t p = at[d] * a.stride[d] + tap[d] * a.window_dilation[d] - a.pad_low[d];
      const int64_t i = p / a.base_dilation[d];
      const bool hit = p >= 0 && p % a.base_dilation[d] == 0 && i < in[d];
      element = hit ? element + i * pitch[d] : -1;
    }
    elements.push_back(element);
  } while (advance(at, out));
  return elements;
}

Tensor filled(const Tensor& scalar, const Type& type) {
  return to_tensor({type, true, std::make_shared<const std::vector<std::byte>>(scalar.data)});
}

// The elements at `from`; places without one hold element 0 of `other`.
Tensor gathered(const Tensor& t, const std::vector<int64_t>& from, const Tensor& other) {
  Tensor out = filled(other, {t.type.elem, {static_cast<int64_t>(from.size())}});
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] >= 0) {
      copy_element(t, from[i], out, static_cast<int64_t>(i));
    }
  }
  return out;
}

}  // namespace

std::vector<Tensor> reduce_window(const Op& op, const Tensors& in, const Env& env) {
  const auto& a = op.as<WindowAttrs>();
  const size_t n = op.results.size();
  const int64_t count = op.type().count();
  std::vector<Tensor> acc;
  for (size_t i = 0; i < n; ++i) {
    acc.push_back(filled(*in[n + i], {op.type(i).elem, {count}}));
  }
  LiftedBody body(op, *op.regions[0], count, env);
  Dims tap(a.size.size(), 0);
  do {
    const auto from = elements_under(a, tap, in[0]->type.dims, op.type().dims);
    std::vector<Tensor> x;
    std::vector<const Tensor*> args;
    for (const Tensor& t : acc) {
      args.push_back(&t);
    }
    for (size_t i = 0; i < n; ++i) {
      x.push_back(gathered(*in[i], from, *in[n + i]));
    }
    for (const Tensor& t : x) {
      args.push_back(&t);
    }
    const std::vector<Tensor> next = body.run(args);
    for (size_t i = 0; i < n; ++i) {
      for (size_t l = 0; l < from.size(); ++l) {
        if (from[l] >= 0) {
          copy_element(next[i], static_cast<int64_t>(l), acc[i], static_cast<int64_t>(l));
        }
      }
    }
  } while (advance(tap, a.size));
  for (size_t i = 0; i < n; ++i) {
    acc[i].type = op.type(i);
  }
  return acc;
}

Tensor select_and_scatter(const Op& op, const Tensors& in, const Env& env) {
  const auto& a = op.as<WindowAttrs>();
  const Dims& windows = in[1]->type.dims;
  const int64_t count = in[1]->type.count();
  LiftedBody select(op, *op.regions[0], count, env);
  std::vector<int64_t> chosen(static_cast<size_t>(count), -1);
  Tensor best = filled(*in[2], {op.type().elem, {count}});
  Dims tap(a.size.size(), 0);
  do {
    const auto from = elements_under(a, tap, in[0]->type.dims, windows);
    const Tensor x = gathered(*in[0], from, *in[2]);
    const Tensor keeps = std::move(select.run({&best, &x})[0]);
    for (size_t l = 0; l < from.size(); ++l) {
      if (from[l] >= 0 && (chosen[l] < 0 || keeps.data[l] == std::byte{0})) {
        chosen[l] = from[l];
        copy_element(x, static_cast<int64_t>(l), best, static_cast<int64_t>(l));
      }
    }
  } while (advance(tap, a.size));
  Tensor out = filled(*in[2], op.type());
  LiftedBody scatter(op, *op.regions[1], 1, env);
  Tensor sum = make_tensor({op.type().elem, {1}});
  Tensor source = sum;
  for (size_t l = 0; l < chosen.size(); ++l) {
    if (chosen[l] < 0) {
      continue;
    }
    copy_element(out, chosen[l], sum, 0);
    copy_element(*in[1], static_cast<int64_t>(l), source, 0);
    copy_element(scatter.run({&sum, &source})[0], 0, out, chosen[l]);
  }
  return out;
}

}  // namespace tpu::compiler::eval
