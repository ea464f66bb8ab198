// See matrices.hpp.
#include "legalize/linalg/matrices.hpp"

#include <algorithm>
#include <limits>

namespace tpu::compiler::legalization {

Value* Matrices::stack(Value* x) {
  const Dims& dims = x->type.dims;
  const int64_t rows = dims[dims.size() - 2], columns = dims.back();
  int64_t batch = 1;
  for (size_t d = 0; d + 2 < dims.size(); ++d) {
    batch *= dims[d];
  }
  return b_.convert(b_.reshape(x, {batch, rows, columns}), number_);
}

Value* Matrices::stack_of_rows(Value* x) {
  const int64_t n = x->type.dims.back();
  return b_.convert(b_.reshape(x, {x->type.count() / n, 1, n}), number_);
}

Value* Matrices::unstack(Value* x, const Type& as) {
  return b_.reshape(b_.convert(x, as.elem), as.dims);
}

Dims Matrices::common(std::initializer_list<const Value*> values) {
  Dims dims(3, 1);
  for (const Value* v : values) {
    for (size_t d = 0; d < dims.size(); ++d) {
      dims[d] = std::max(dims[d], v->type.dims[d]);
    }
  }
  return dims;
}

Value* Matrices::spread(Value* x, const Dims& dims) { return b_.broadcast(x, dims, {0, 1, 2}); }

Value* Matrices::binary(Kind kind, Value* a, Value* b) {
  const Dims dims = common({a, b});
  Value *right = spread(b, dims), *left = spread(a, dims);
  return b_.binary(kind, left, right);
}

Value* Matrices::compare(CompareDirection direction, Value* a, Value* b) {
  const Dims dims = common({a, b});
  Value *right = spread(b, dims), *left = spread(a, dims);
  return b_.compare(direction, left, right);
}

Value* Matrices::select(Value* predicate, Value* on_true, Value* on_false) {
  const Dims dims = common({predicate, on_true, on_false});
  Value *no = spread(on_false, dims), *yes = spread(on_true, dims);
  return b_.select(spread(predicate, dims), yes, no);
}

Value* Matrices::number(double value) { return b_.splat({number_, {1, 1, 1}}, value); }

Value* Matrices::integer(int64_t value) { return b_.splat_int({Elem::kI32, {1, 1, 1}}, value); }

Value* Matrices::lift(Value* scalar) { return b_.reshape(scalar, {1, 1, 1}); }

Value* Matrices::indices(int64_t n, int64_t dim) {
  return b_.iota({Elem::kI32, with_dim({1, 1, 1}, dim, n)}, dim);
}

Value* Matrices::compare_indices(CompareDirection direction, int64_t rows, int64_t columns) {
  Value *column = indices(columns, 2), *row = indices(rows, 1);
  return compare(direction, row, column);
}

Value* Matrices::reduce(Kind kind, Value* x, double init, int64_t dim) {
  return b_.reshape(b_.reduce(kind, x, b_.splat({x->type.elem, {}}, init), {dim}),
                    with_dim(x->type.dims, dim, 1));
}

Value* Matrices::sum(Value* x, int64_t dim) { return reduce(Kind::kAdd, x, 0, dim); }

Value* Matrices::pick(Value* x, Value* index, Value* at, int64_t dim) {
  Value* zero = b_.splat_int({x->type.elem, {1, 1, 1}}, 0);
  return sum(select(compare(CompareDirection::kEq, index, at), x, zero), dim);
}

Value* Matrices::first_largest(Value* size, Value* rows, Value* at) {
  const int64_t height = dim(rows, 1);
  size = where(CompareDirection::kEq, size, size, size,
               number(std::numeric_limits<double>::infinity()));
  size = where(CompareDirection::kGe, rows, at, size, number(-1));
  Value* most = reduce(Kind::kMaximum, size, -1, 1);
  Value* found = where(CompareDirection::kEq, size, most, rows, integer(height));
  return reduce(Kind::kMinimum, found, static_cast<double>(height), 1);
}

Value* Matrices::swapped(Value* x, Value* rows, Value* i, Value* j) {
  Value* row_i = pick(x, rows, i, 1);
  Value* row_j = pick(x, rows, j, 1);
  return where(CompareDirection::kEq, rows, i, row_j,
               where(CompareDirection::kEq, rows, j, row_i, x));
}

Values Matrices::sorted(const Values& arrays, int64_t dim) {
  std::vector<Type> types;
  for (const Value* v : arrays) {
    types.push_back(v->type);
  }
  Op* sort = rw_.make_op(Kind::kSort, arrays, types, SortAttrs{dim, true});
  Region* body = sort->add_region();
  for (const Type& t : types) {
    body->add_arg({t.elem, {}});
    body->add_arg({t.elem, {}});
  }
  rw_.within(*body, [&] {
    Value* less = b_.compare(CompareDirection::kLt, body->args[0].get(), body->args[1].get());
    rw_.make_op(Kind::kReturn, {less}, {}, NoAttrs{});
  });
  Values out;
  for (const auto& r : sort->results) {
    out.push_back(r.get());
  }
  return out;
}

Value* Matrices::scale(Value* magnitude) {
  constexpr int64_t kExponent = 0x7f800000;
  constexpr double kLargest = 0x1p126;  // its reciprocal is no subnormal number either
  const Type bits{Elem::kI32, magnitude->type.dims};
  const Type f32{Elem::kF32, magnitude->type.dims};
  Value* nearest = b_.convert(magnitude, Elem::kF32);
  Value *field = b_.splat_int(bits, kExponent), *word = b_.bitcast(nearest, bits);
  Value* exponent = b_.logical_and(word, field);
  Value *least = b_.splat(f32, 1 / kLargest), *below = b_.bitcast(exponent, f32);
  Value* power = b_.max(below, least);
  return b_.convert(b_.min(power, b_.splat(f32, kLargest)), number_);
}

Value* Matrices::slice_at(Value* x, Value* i, size_t dim) {
  Value* zero = b_.splat_int(i->type, 0);
  Values operands = {x, zero, zero, zero};
  operands[1 + dim] = i;
  const Dims sizes = with_dim(x->type.dims, static_cast<int64_t>(dim), 1);
  return rw_.make(Kind::kDynamicSlice, operands, {x->type.elem, sizes}, DimsAttrs{sizes});
}

Value* Matrices::row(Value* x, Value* i) { return slice_at(x, i, 1); }
Value* Matrices::column(Value* x, Value* i) { return slice_at(x, i, 2); }

Values Matrices::loop(const Values& carried, const Test& condition, const Next& body) {
  std::vector<Type> types;
  for (const Value* v : carried) {
    types.push_back(v->type);
  }
  Op* op = rw_.make_op(Kind::kWhile, carried, types, NoAttrs{});
  const auto fill = [&](const Next& make) {
    Region* region = op->add_region();
    Values args;
    for (const Type& t : types) {
      args.push_back(region->add_arg(t));
    }
    rw_.within(*region, [&] { rw_.make_op(Kind::kReturn, make(args), {}, NoAttrs{}); });
  };
  fill([&](const Values& args) { return Values{condition(args)}; });
  fill(body);
  Values out;
  for (const auto& r : op->results) {
    out.push_back(r.get());
  }
  return out;
}

Values Matrices::repeat(int64_t trips, const Values& carried, const Step& body) {
  const Type counter{Elem::kI32, {}};
  Values all = {b_.splat_int(counter, 0)};
  all.insert(all.end(), carried.begin(), carried.end());
  Values out = loop(
      all,
      [&](const Values& args) {
        return b_.compare(CompareDirection::kLt, args[0], b_.splat_int(counter, trips));
      },
      [&](const Values& args) {
        Values next = body(args[0], Values(args.begin() + 1, args.end()));
        next.insert(next.begin(), b_.add(args[0], b_.splat_int(counter, 1)));
        return next;
      });
  out.erase(out.begin());
  return out;
}

}  // namespace tpu::compiler::legalization
