// Makers of graph ops: see builder.hpp.
#include "legalize/builder.hpp"

#include <algorithm>
#include <unordered_map>

namespace tpu::compiler {

Dims with_dim(Dims dims, int64_t dim, int64_t value) {
  dims[static_cast<size_t>(dim)] = value;
  return dims;
}

Value* Builder::unary(Kind kind, Value* x) {
  Type type = x->type;
  if (kind == Kind::kIsFinite) {
    type.elem = Elem::kI1;
  }
  return rw_.make(kind, {x}, type);
}

Value* Builder::binary(Kind kind, Value* a, Value* b) { return rw_.make(kind, {a, b}, a->type); }

Value* Builder::compare(CompareDirection direction, Value* a, Value* b) {
  const Elem e = a->type.elem;
  CompareAttrs attrs;
  attrs.direction = direction;
  attrs.type = is_float(e)    ? CompareType::kFloat
               : is_signed(e) ? CompareType::kSigned
                              : CompareType::kUnsigned;
  return rw_.make(Kind::kCompare, {a, b}, {Elem::kI1, a->type.dims}, attrs);
}

Value* Builder::select(Value* predicate, Value* on_true, Value* on_false) {
  return rw_.make(Kind::kSelect, {predicate, on_true, on_false}, on_true->type);
}

Value* Builder::convert(Value* x, Elem elem) {
  return x->type.elem == elem ? x : rw_.make(Kind::kConvert, {x}, {elem, x->type.dims});
}

Value* Builder::bitcast(Value* x, Type type) {
  return x->type == type ? x : rw_.make(Kind::kBitcastConvert, {x}, std::move(type));
}

Value* Builder::splat(const Type& type, double value) {
  return rw_.constant(make_splat(type, value));
}

Value* Builder::splat_int(const Type& type, int64_t value) {
  return rw_.constant(is_float(type.elem) ? make_splat(type, static_cast<double>(value))
                                          : make_splat_int(type, value));
}

Value* Builder::iota(const Type& type, int64_t dim) {
  return rw_.make(Kind::kIota, {}, type, DimAttrs{dim});
}

Value* Builder::reshape(Value* x, Dims dims) {
  return x->type.dims == dims ? x : rw_.make(Kind::kReshape, {x}, {x->type.elem, std::move(dims)});
}

Value* Builder::transpose(Value* x, Dims permutation) {
  Type type{x->type.elem, {}};
  for (const int64_t d : permutation) {
    type.dims.push_back(x->type.dims[static_cast<size_t>(d)]);
  }
  return rw_.make(Kind::kTranspose, {x}, type, DimsAttrs{std::move(permutation)});
}

Value* Builder::broadcast(Value* x, const Dims& dims, Dims where) {
  return x->type.dims == dims ? x
                              : rw_.make(Kind::kBroadcastInDim, {x}, {x->type.elem, dims},
                                         DimsAttrs{std::move(where)});
}

Value* Builder::slice(Value* x, Dims start, Dims limit, Dims stride) {
  if (stride.empty()) {
    stride.assign(start.size(), 1);
  }
  Type type{x->type.elem, {}};
  for (size_t d = 0; d < start.size(); ++d) {
    type.dims.push_back((limit[d] - start[d] + stride[d] - 1) / stride[d]);
  }
  return rw_.make(Kind::kSlice, {x}, type,
                  SliceAttrs{std::move(start), std::move(limit), std::move(stride)});
}

Value* Builder::slice_dim(Value* x, int64_t dim, int64_t start, int64_t limit, int64_t stride) {
  const Dims zero(x->type.dims.size(), 0), one(x->type.dims.size(), 1);
  return slice(x, with_dim(zero, dim, start), with_dim(x->type.dims, dim, limit),
               with_dim(one, dim, stride));
}

Value* Builder::reverse(Value* x, Dims dims) {
  return rw_.make(Kind::kReverse, {x}, x->type, DimsAttrs{std::move(dims)});
}

Value* Builder::concatenate(std::vector<Value*> parts, int64_t dim) {
  if (parts.size() == 1) {
    return parts[0];
  }
  Type type = parts.at(0)->type;
  int64_t n = 0;
  for (const Value* p : parts) {
    n += p->type.dims[static_cast<size_t>(dim)];
  }
  type.dims[static_cast<size_t>(dim)] = n;
  return rw_.make(Kind::kConcatenate, std::move(parts), type, DimAttrs{dim});
}

Value* Builder::pad(Value* x, Value* value, Dims low, Dims high, Dims interior) {
  if (interior.empty()) {
    interior.assign(low.size(), 0);
  }
  Type type{x->type.elem, {}};
  bool nothing = true;
  for (size_t d = 0; d < low.size(); ++d) {
    const int64_t n = x->type.dims[d];
    const int64_t inside = n + std::max<int64_t>(n - 1, 0) * interior[d];
    type.dims.push_back(std::max<int64_t>(low[d] + inside + high[d], 0));
    nothing = nothing && low[d] == 0 && high[d] == 0 && (interior[d] == 0 || n <= 1);
  }
  return nothing ? x
                 : rw_.make(Kind::kPad, {x, value}, type,
                            PadAttrs{std::move(low), std::move(high), std::move(interior)});
}

Value* Builder::window(Value* x, Dims size, Dims stride, Dims dilation) {
  Type type{x->type.elem, {}};
  for (size_t d = 0; d < size.size(); ++d) {
    const int64_t reach = (size[d] - 1) * dilation[d] + 1;
    const int64_t n = x->type.dims[d];
    type.dims.push_back(n < reach ? 0 : (n - reach) / stride[d] + 1);
  }
  type.dims.insert(type.dims.end(), size.begin(), size.end());
  return rw_.make(Kind::kWindow, {x}, type,
                  WindowViewAttrs{std::move(size), std::move(stride), std::move(dilation)});
}

Value* Builder::reduce(Kind body, Value* x, Value* init, Dims dims, bool apart) {
  Type type{x->type.elem, {}};
  for (int64_t d = 0; d < x->type.rank(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) {
      type.dims.push_back(x->type.dims[static_cast<size_t>(d)]);
    }
  }
  Value* v = rw_.make(Kind::kReduce, {x, init}, type, DimsAttrs{std::move(dims), apart});
  Region* region = v->def->add_region();
  const Type scalar{x->type.elem, {}};
  Value* a = region->add_arg(scalar);
  Value* b = region->add_arg(scalar);
  Value* r = region->append(body, {a, b}, {scalar}, NoAttrs{}, v->def->loc)->result();
  region->append(Kind::kReturn, {r}, {}, NoAttrs{}, v->def->loc);
  return v;
}

std::vector<Value*> Builder::apply(const Region& body, const std::vector<Value*>& args,
                                   const Dims& dims) {
  ValueMap map;
  for (size_t i = 0; i < args.size(); ++i) {
    map[body.args.at(i).get()] = args[i];
  }
  const auto find = [&](Value* v) {
    const auto it = map.find(v);
    return it != map.end() ? it->second : map[v] = broadcast_scalar(v, dims);
  };
  for (const auto& op : body.ops) {
    std::vector<Value*> operands;
    for (Value* v : op->operands) {
      operands.push_back(find(v));
    }
    if (op->kind == Kind::kReturn) {
      return operands;
    }
    if (op->kind == Kind::kConstant) {
      Dense value = op->as<ConstantAttrs>().value;
      value.type.dims = dims;
      value.splat = true;
      map[op->result()] = rw_.constant(std::move(value));
    } else if (op->kind == Kind::kReshape || op->kind == Kind::kBroadcastInDim) {
      map[op->result()] = operands.at(0);  // of a scalar to a scalar
    } else if (op->regions.empty() && op->results.size() == 1 && is_elementwise(op->kind)) {
      map[op->result()] = rw_.make(op->kind, operands, {op->type().elem, dims}, op->attrs);
    } else {
      throw Error("only elementwise ops are supported in a body that is applied element by element",
                  source_name(op->kind), op->loc);
    }
  }
  throw Error("a region does not end with a return");
}

}  // namespace tpu::compiler
