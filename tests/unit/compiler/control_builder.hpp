// Short names for writing while, if and case in tests, on top of graph_builder.hpp.
#pragma once

#include <functional>

#include "graph_builder.hpp"

namespace tpu::compiler::test {

using Values = std::vector<Value*>;

// Makes ops in one region.
class RegionBuilder {
 public:
  explicit RegionBuilder(Region& region) : region_(region) {}

  Value* op(Kind kind, Values operands, Type type, Attrs attrs = NoAttrs{}) {
    return region_
        .append(kind, std::move(operands), {std::move(type)}, std::move(attrs), unknown_loc())
        ->result();
  }
  void op_without_result(Kind kind, Values operands, Attrs attrs) {
    region_.append(kind, std::move(operands), {}, std::move(attrs), unknown_loc());
  }
  Value* number(const Type& type, double value) {
    return op(Kind::kConstant, {}, type, ConstantAttrs{make_splat(type, value)});
  }
  Value* add(Value* a, Value* b) { return op(Kind::kAdd, {a, b}, a->type); }
  Value* mul(Value* a, Value* b) { return op(Kind::kMultiply, {a, b}, a->type); }
  Value* compare(CompareDirection d, Value* a, Value* b) {
    return op(Kind::kCompare, {a, b}, i1(a->type.dims), CompareAttrs{d, CompareType::kNone});
  }
  Value* spread(Value* scalar, const Dims& dims) {
    return op(Kind::kBroadcastInDim, {scalar}, {scalar->type.elem, dims}, DimsAttrs{});
  }
  Value* slice(Value* x, Values starts, Dims sizes) {
    starts.insert(starts.begin(), x);
    return op(Kind::kDynamicSlice, starts, {x->type.elem, sizes}, DimsAttrs{sizes});
  }
  Value* update(Value* x, Value* part, Values starts) {
    starts.insert(starts.begin(), {x, part});
    return op(Kind::kDynamicUpdateSlice, starts, x->type);
  }

  using Body = std::function<Values(RegionBuilder&, const Values& args)>;

  // Results of the op.
  Values loop(const Values& inits, const Body& condition, const Body& body) {
    std::vector<Type> types;
    for (const Value* v : inits) {
      types.push_back(v->type);
    }
    Op* made = region_.append(Kind::kWhile, inits, types, NoAttrs{}, unknown_loc());
    fill(*made->add_region(), types, condition);
    fill(*made->add_region(), types, body);
    return results(*made);
  }
  // `trips` times with a counter as carried value 0; the results after it.
  Values times(int64_t trips, Values inits, const Body& body) {
    inits.insert(inits.begin(), number(i32({}), 0));
    Values out = loop(
        inits,
        [&](RegionBuilder& r, const Values& a) {
          return Values{r.compare(CompareDirection::kLt, a[0],
                                  r.number(i32({}), static_cast<double>(trips)))};
        },
        [&](RegionBuilder& r, const Values& a) {
          Values next = body(r, a);
          next.insert(next.begin(), r.add(a[0], r.number(i32({}), 1)));
          return next;
        });
    out.erase(out.begin());
    return out;
  }
  Values choose(Kind kind, Value* which, const std::vector<Type>& types,
                const std::vector<Body>& arms) {
    Op* made = region_.append(kind, {which}, types, NoAttrs{}, unknown_loc());
    for (const Body& arm : arms) {
      fill(*made->add_region(), {}, arm);
    }
    return results(*made);
  }

 private:
  static void fill(Region& region, const std::vector<Type>& types, const Body& body) {
    Values args;
    for (const Type& t : types) {
      args.push_back(region.add_arg(t));
    }
    RegionBuilder inner(region);
    const Values out = body(inner, args);
    region.append(Kind::kReturn, out, {}, NoAttrs{}, unknown_loc());
  }
  static Values results(const Op& op) {
    Values out;
    for (const auto& r : op.results) {
      out.push_back(r.get());
    }
    return out;
  }

  Region& region_;
};

}  // namespace tpu::compiler::test
