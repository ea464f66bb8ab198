// Short names for writing graphs in tests: `b.op(Kind::kAdd, {x, y}, f32({2}))`. Every op gets its
// own source line, counted from 1, so that error tests can name it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ir/graph.hpp"

namespace tpu::compiler::test {

inline Type f32(Dims dims) { return {Elem::kF32, std::move(dims)}; }
inline Type i32(Dims dims) { return {Elem::kI32, std::move(dims)}; }
inline Type i1(Dims dims) { return {Elem::kI1, std::move(dims)}; }

class GraphBuilder {
 public:
  explicit GraphBuilder(int64_t num_cores = 1) {
    module_.name = "test";
    module_.num_cores = num_cores;
    module_.main = std::make_unique<Function>();
    module_.main->name = "main";
    module_.main->loc = unknown_loc();
    region_ = &module_.main->body;
  }

  Value* arg(Type type) {
    module_.main->args.push_back({"", type, {}, -1, false});
    return region_->add_arg(std::move(type));
  }

  Value* op(Kind kind, std::vector<Value*> operands, Type type, Attrs attrs = NoAttrs{}) {
    return region_
        ->append(kind, std::move(operands), {std::move(type)}, std::move(attrs), next_loc())
        ->result();
  }

  Value* constant(const Type& type, double value) {
    return op(Kind::kConstant, {}, type, ConstantAttrs{make_splat(type, value)});
  }

  // Adds a body of one binary op on scalars to the op that makes `v`.
  Value* with_body(Value* v, Kind kind) {
    Region* body = v->def->add_region();
    const Type scalar{v->type.elem, {}};
    Value* a = body->add_arg(scalar);
    Value* b = body->add_arg(scalar);
    Value* r = body->append(kind, {a, b}, {scalar}, NoAttrs{}, next_loc())->result();
    body->append(Kind::kReturn, {r}, {}, NoAttrs{}, next_loc());
    return v;
  }

  Value* reduce(Value* x, Value* init, Dims dims, Type type, Kind kind) {
    return with_body(op(Kind::kReduce, {x, init}, std::move(type), DimsAttrs{std::move(dims)}),
                     kind);
  }

  // Ends main. The module stays with the builder.
  Module& done(std::vector<Value*> results) {
    for (const Value* v : results) {
      module_.main->results.push_back({"", v->type, {}});
    }
    region_->append(Kind::kReturn, std::move(results), {}, NoAttrs{}, next_loc());
    module_.number_ops();
    return module_;
  }

  Module& module() { return module_; }
  Region& region() { return *region_; }

 private:
  LocRef next_loc() {
    auto loc = std::make_shared<Loc>();
    loc->frames = {{"test.py", ++line_, 1, ""}};
    return loc;
  }

  Module module_;
  Region* region_ = nullptr;
  uint32_t line_ = 0;
};

// Kinds of the ops of main in order, with a space between: "dot_general add return".
inline std::string kinds(const Module& module) {
  std::string text;
  for (const auto& op : module.main->body.ops) {
    text += (text.empty() ? "" : " ") + std::string(kind_name(op->kind));
  }
  return text;
}

}  // namespace tpu::compiler::test
