// A graph that keeps two values of each layer for later, as a training step does:
//   forward    p = h w; h = p logistic(p)          each of the layers
//   backward   sum += h^T g; g = (g p) w           from the last layer to the first
// What comes late can be made again: h of p, which is read still later.
#pragma once

#include <vector>

#include "graph_builder.hpp"

namespace tpu::compiler::test {

struct KeptLayers {
  std::vector<Value*> products, activations;  // p and h, by layer
};

inline KeptLayers kept_layers(GraphBuilder& b, int layers, int64_t rows, int64_t width) {
  const Type type = f32({rows, width}), square = f32({width, width});
  const DotAttrs by_rows{{}, {}, {1}, {0}}, over_rows{{}, {}, {0}, {0}};
  Value* h = b.arg(type);
  Value* w = b.arg(square);
  KeptLayers kept;
  for (int i = 0; i < layers; ++i) {
    Value* p = b.op(Kind::kDotGeneral, {h, w}, type, by_rows);
    h = b.op(Kind::kMultiply, {p, b.op(Kind::kLogistic, {p}, type)}, type);
    kept.products.push_back(p);
    kept.activations.push_back(h);
  }
  Value *g = h, *sum = w;
  for (int i = layers - 1; i >= 0; --i) {
    const auto at = static_cast<size_t>(i);
    Value* of_weights = b.op(Kind::kDotGeneral, {kept.activations[at], g}, square, over_rows);
    sum = b.op(Kind::kAdd, {sum, of_weights}, square);
    Value* scaled = b.op(Kind::kMultiply, {g, kept.products[at]}, type);
    g = b.op(Kind::kDotGeneral, {scaled, w}, type, by_rows);
  }
  b.done({sum, g});
  return kept;
}

}  // namespace tpu::compiler::test
