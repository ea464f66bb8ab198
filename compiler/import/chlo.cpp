// Operations of CHLO in StableHLO's own bytecode; portable artifacts have them as composites with
// their decompositions, and these are what is made of them here:
//   %y = chlo.erf_inv %x : f32[4,5]  =>  %y = composite %x {"chlo.erf_inv", @chlo.erf_inv_f32[4,5]}
#include "import/chlo.hpp"

#include "import/bytecode.hpp"
#include "import/import_parts.hpp"
#include "import/normalise.hpp"

namespace tpu::compiler::frontend {
namespace {

// Read once; never written again.
const Module& library() {
  static const Module module = normalise(bytecode::read_bytecode(chlo_artifact()), "chlo", {});
  return module;
}

// A function of scalars, whose ops are elementwise, on arrays.
class ArrayCopy {
 public:
  ArrayCopy(const Dims& dims, const LocRef& loc, Region& to) : dims_(dims), loc_(loc), to_(to) {}

  std::vector<Value*> call(const Function& scalar, const std::vector<Value*>& args) {
    ValueMap map;
    for (size_t i = 0; i < args.size(); ++i) {
      map[scalar.body.args[i].get()] = args[i];
    }
    for (const auto& op : scalar.body.ops) {
      std::vector<Value*> in = mapped(op->operands, map);
      if (op->kind == Kind::kReturn) {
        return in;
      }
      std::vector<Value*> out;
      if (op->kind == Kind::kComposite || op->kind == Kind::kCall) {
        out = call(*library().find(op->as<CallAttrs>().callee), in);
      } else {
        out = {array_op(*op, std::move(in))};
      }
      for (size_t i = 0; i < out.size(); ++i) {
        map[op->result(i)] = out[i];
      }
    }
    return {};
  }

 private:
  Value* array_op(const Op& op, std::vector<Value*> in) {
    const Type type{op.type().elem, dims_};
    Attrs attrs = op.attrs;
    if (op.kind == Kind::kConstant) {
      const Dense& one = op.as<ConstantAttrs>().value;
      attrs = ConstantAttrs{type.count() == 0 ? make_dense(type, {})
                                              : Dense{type, type.count() != 1, one.data}};
    }
    return to_.append(op.kind, std::move(in), {type}, std::move(attrs), loc_)->result();
  }

  const Dims& dims_;
  const LocRef& loc_;
  Region& to_;
};

// The function of an elementwise op ("erf_inv") on floats of a type, for arrays of `dims`, all ops
// at `loc`; null if there is none.
std::unique_ptr<Function> chlo_function(const std::string& name, Elem elem, const Dims& dims,
                                        const LocRef& loc) {
  const std::string key = name + "_" + std::string(elem_name(elem));
  const Function* scalar = library().find(key);
  if (scalar == nullptr) {
    return nullptr;
  }
  auto f = std::make_unique<Function>();
  f->name = "chlo." + key + to_string(dims);
  f->loc = loc;
  std::vector<Value*> args;
  for (size_t i = 0; i < scalar->body.args.size(); ++i) {
    args.push_back(f->body.add_arg({elem, dims}));
    f->args.push_back({"", {elem, dims}, {}, -1, false});
  }
  const std::vector<Value*> results = ArrayCopy(dims, loc, f->body).call(*scalar, args);
  for (const Value* v : results) {
    f->results.push_back({"", v->type, {}});
  }
  f->body.append(Kind::kReturn, results, {}, NoAttrs{}, loc);
  return f;
}

}  // namespace

// The others are said by one op each, or by the sort that JAX makes of it.
void ChloOps::convert(const OpReader& reader, Region& to) {
  convert_as(std::string(reader.raw().name), reader, to);
}

void ChloOps::convert_as(const std::string& name, const OpReader& reader, Region& to) {
  if (name == "top_k") {
    top_k(reader, true, to);
    return;
  }
  const std::vector<Type> types = result_types(reader);
  if (types.size() != 1) {
    reader.fail("wrong number of results");
  }
  if (name == "constant") {
    define_results(reader,
                   *to.append(Kind::kConstant, {}, types,
                              ConstantAttrs{reader.dense(reader.property("value"))}, reader.loc()));
    return;
  }
  const std::vector<Value*> in = operands(reader);
  if (in.empty()) {
    reader.fail("wrong number of operands");
  }
  const Type& type = in[0]->type;
  if (name == "square" && !is_float(type.elem)) {
    define_results(reader,
                   *to.append(Kind::kMultiply, {in[0], in[0]}, types, NoAttrs{}, reader.loc()));
    return;
  }
  const std::string function =
      "chlo." + name + "_" + std::string(elem_name(type.elem)) + to_string(type.dims);
  if (out_.find(function) == nullptr) {
    auto made = chlo_function(name, type.elem, type.dims, reader.loc());
    if (!made) {
      reader.fail("the operation '" + name + "' of CHLO on " + to_string(type) +
                  " is not supported; write the program as a portable artifact "
                  "(stablehlo.serialize_portable_artifact), which has it in operations of "
                  "StableHLO, or convert the operand to f32");
    }
    out_.functions.push_back(std::move(made));
  }
  define_results(reader, *to.append(Kind::kComposite, in, types,
                                    CallAttrs{function, "chlo." + name}, reader.loc()));
}

// Equal ones are in their order.
void ChloOps::top_k(const OpReader& reader, bool largest, Region& to) {
  const RawOp& op = reader.raw();
  const std::vector<Type> types = result_types(reader);
  if (op.operands.size() != 1 || types.size() != 2) {
    reader.fail("wrong number of operands or results: expected 1 and 2");
  }
  Value* x = operand(reader, 0);
  const int64_t dim = x->type.rank() - 1;
  if (dim < 0 || types[0].rank() != x->type.rank() || types[1].dims != types[0].dims) {
    reader.fail("operand and results must have the same rank, at least 1");
  }
  const LocRef& loc = reader.loc();
  const Type places{types[1].elem, x->type.dims};
  Value* place = to.append(Kind::kIota, {}, {places}, DimAttrs{dim}, loc)->result();
  Op* sort = to.append(Kind::kSort, {x, place}, {x->type, places}, SortAttrs{dim, true}, loc);
  Region* body = sort->add_region();
  const Type scalar{x->type.elem, {}}, index{types[1].elem, {}};
  Value* a = body->add_arg(scalar);
  Value* b = body->add_arg(scalar);
  body->add_arg(index);
  body->add_arg(index);
  const CompareType order = is_float(scalar.elem) ? CompareType::kTotalOrder : CompareType::kNone;
  const CompareDirection direction = largest ? CompareDirection::kGt : CompareDirection::kLt;
  Value* first =
      body->append(Kind::kCompare, {a, b}, {{Elem::kI1, {}}}, CompareAttrs{direction, order}, loc)
          ->result();
  body->append(Kind::kReturn, {first}, {}, NoAttrs{}, loc);
  const Dims zero(types[0].dims.size(), 0), one(types[0].dims.size(), 1);
  for (size_t i = 0; i < 2; ++i) {
    values_[op.results[i]] = to.append(Kind::kSlice, {sort->result(i)}, {types[i]},
                                       SliceAttrs{zero, types[i].dims, one}, loc)
                                 ->result();
  }
}

}  // namespace tpu::compiler::frontend
