// Raw VHLO ops to graph ops: functions, regions and single ops. See normaliser.hpp.
#include "import/normalise.hpp"

#include <array>

#include "import/advice.hpp"
#include "import/normaliser.hpp"
#include "import/replicas.hpp"

namespace tpu::compiler::frontend {
namespace {

using bytecode::Dialect;

constexpr size_t kMaxOps = 2'000'000;

bool makes_token(std::string_view name) { return name == "create_token" || name == "after_all"; }
const std::vector<std::array<int64_t, 2>> kToItself = {{0, 0}};  // collective_permute of one core

}  // namespace

Module Normaliser::run() {
  if (raw_.module.regions.size() != 1) {
    throw Error("the artifact is damaged: the module has no body");
  }
  out_.num_cores = cores_.num_cores;
  for (const RawOp& op : raw_.module.regions[0].ops) {
    const OpReader reader = open(op);
    if (op.dialect == Dialect::kSdy && op.name == "mesh") {
      shardings_.add_mesh(reader);
    } else if (op.dialect == Dialect::kVhlo && base_name(op.name) == "func") {
      functions_.emplace(reader.text("sym_name"), &op);
    } else {
      reader.fail("this op is not supported at the top of a module");
    }
  }
  calls_.check();
  if (functions_.count("main") == 0) {
    throw Error("the artifact has no function 'main'; jax.export makes one");
  }
  try {
    convert_functions();
  } catch (const Contradiction&) {
    throw;
  } catch (const HbmExhausted&) {
    throw;
  } catch (const Error& e) {
    Survey(whole, calls_, interface_).fail(e);
  }
  out_.global = true;
  out_.mesh = atoms_.mesh();
  if (cores_.replicas > 1) {
    add_replicas(out_, cores_, interface_.same());
  }
  if (for_host_ > 0) {
    out_.notes.push_back("compute_on: " + std::to_string(for_host_) +
                         (for_host_ == 1 ? " operation" : " operations") +
                         " for the host, computed on the core; the first is at " +
                         to_string(*first_for_host_));
  }
  out_.number_ops();
  return std::move(out_);
}

void Normaliser::convert_functions() {
  interface_.convert(*functions_.at("main"), *this);
  for (const auto& [function_name, op] : functions_) {
    if (function_name != "main") {
      try {
        convert_function(*op);
      } catch (const Contradiction& e) {
        throw Contradiction(e.message(), e.op(), nested_loc(calls_.caller_loc(*op), e.loc()));
      } catch (const HbmExhausted& e) {
        throw HbmExhausted(e.message(), e.op(), nested_loc(calls_.caller_loc(*op), e.loc()));
      } catch (const Error& e) {
        throw Error(e.message(), e.op(), nested_loc(calls_.caller_loc(*op), e.loc()));
      }
    }
  }
}

void Normaliser::convert_function(const RawOp& op) {
  const OpReader reader = open(op);
  const RawRegion& body = body_of(op, reader);
  auto f = std::make_unique<Function>();
  f->name = reader.text("sym_name");
  f->loc = reader.loc();
  for (size_t i = 0; i < body.args.size(); ++i) {
    const Type type = interface_.arg_type(reader, body, i);
    values_[body.args[i].value] = f->body.add_arg(type);
    f->args.push_back({"", type, {}, -1, false});
  }
  convert_ops(body, f->body);
  for (const Value* v : f->body.terminator()->operands) {
    f->results.push_back({"", v->type, {}});
  }
  out_.functions.push_back(std::move(f));
}

void Normaliser::convert_ops(const RawRegion& region, Region& to) {
  for (size_t i = 0; i < region.ops.size(); ++i) {
    const bool last = i + 1 == region.ops.size();
    const RawOp& op = region.ops[i];
    const bool is_return = (op.dialect == Dialect::kVhlo && base_name(op.name) == "return") ||
                           (op.dialect == Dialect::kSdy && op.name == "return");
    if (last != is_return) {
      open(op).fail(last ? "the region does not end with a return" : "a return inside of a region");
    }
    convert_op(op, to);
  }
}

void Normaliser::convert_op(const RawOp& op, Region& to) {
  const OpReader reader = open(op);
  if (++num_ops_ > kMaxOps) {
    reader.fail("the program has more than " + std::to_string(kMaxOps) + " ops");
  }
  check_known(reader, raw_, options_);
  note_place_of_work(reader);
  if (op.dialect == Dialect::kBuiltin) {
    identity(reader);
  } else if (op.dialect == Dialect::kSdy) {
    shardy_.convert(reader, to);
  } else if (op.dialect == Dialect::kChlo) {
    chlo_.convert(reader, to);
  } else {
    convert_vhlo(reader, to);
  }
}

// jax.experimental.compute_on('device_host'): the values are the same wherever they are computed.
void Normaliser::note_place_of_work(const OpReader& reader) {
  const uint32_t attributes = tables_.entry(reader.raw().dictionary, "mhlo.frontend_attributes");
  if (tables_.text(tables_.entry(attributes, "_xla_compute_type")) == "host" && for_host_++ == 0) {
    first_for_host_ = reader.loc();
  }
}

void check_known(const OpReader& reader, const bytecode::RawModule& raw,
                 const ImportOptions& options) {
  const RawOp& op = reader.raw();
  if (op.dialect == Dialect::kSdy ||
      (op.dialect == Dialect::kBuiltin && op.name == "unrealized_conversion_cast")) {
    return;
  }
  if (op.dialect == Dialect::kChlo) {
    return;
  }
  if (op.dialect == Dialect::kHlo) {
    reader.fail("this instruction of HLO is not supported" + advice_for_op(op.name));
  }
  if (op.dialect == Dialect::kOther) {
    reader.fail(
        "this op is not a StableHLO op; write the program as a portable artifact "
        "(stablehlo.serialize_portable_artifact), which has StableHLO ops only");
  }
  if (op.dialect != Dialect::kVhlo || bytecode::op_properties(op.dialect, op.name) == nullptr) {
    reader.fail("this op is not known (" + std::string(op.name) + ", artifact of " + raw.producer +
                ")");
  }
  const std::string name = base_name(op.name);
  if (name == "custom_call") {
    check_target(reader, options);
  } else if (!is_form(name) && !makes_token(name) && !kind_from_name(name)) {
    reader.fail("this op is not supported" + advice_for_op(name));
  }
}

void Normaliser::convert_vhlo(const OpReader& reader, Region& to) {
  const RawOp& op = reader.raw();
  const std::string name = base_name(op.name);
  if (is_form(name)) {
    define_results(reader, *convert_form(reader, name, operands(reader), to));
    return;
  }
  if (makes_token(name)) {
    define_results(reader, *made_token(reader.loc(), kTokenType, to)->def);
    return;
  }
  const Kind kind = kind_from_name(name).value();
  if (kind == Kind::kSend || kind == Kind::kRecv) {
    host_.convert(reader, kind, to);
    return;
  }
  if (kind == Kind::kCustomCall) {
    if (!gspmd_ops_.convert_custom_call(reader, to)) {
      custom_calls_.convert(reader, to);
    }
    return;
  }
  if (kind == Kind::kCall && gspmd_ops_.is_shard_map(op)) {
    gspmd_ops_.convert_shard_map(reader, to);
    return;
  }
  std::vector<Type> types = result_types(reader);
  if ((kind == Kind::kPartitionId || kind == Kind::kReplicaId) && types.size() == 1) {
    define_results(reader, core_number(reader, kind, types[0], to));
    return;
  }
  Attrs attrs = convert_attrs(kind, reader, cores_, &shardings_);
  const auto* sends = std::get_if<PermuteAttrs>(&attrs);
  if (sends != nullptr && cores_.num_cores == 1 && sends->pairs == kToItself) {
    identity(reader);  // to itself, whichever core of the board it is
    return;
  }
  if (kind == Kind::kDotGeneral && types.size() == 1 &&
      operand(reader, 0)->type.elem == Elem::kI1) {
    define_results(reader, product_of_truths(reader, std::get<DotAttrs>(attrs), types[0], to));
    return;
  }
  Op* out = to.append(kind, operands(reader), std::move(types), std::move(attrs), reader.loc());
  if (kind == Kind::kComposite || kind == Kind::kCall) {
    convert_regions_of_call(reader);
  } else {
    convert_regions(reader, *out);
  }
  define_results(reader, *out);
}

const Op& Normaliser::core_number(const OpReader& reader, Kind kind, const Type& type,
                                  Region& to) const {
  const bool counts_partitions = kind == Kind::kPartitionId;
  const int64_t ids = counts_partitions ? cores_.partitions : cores_.replicas;
  const auto number = [&](int64_t n) {
    return to.append(Kind::kConstant, {}, {type}, ConstantAttrs{make_splat_int(type, n)},
                     reader.loc());
  };
  if (ids == 1) {
    return *number(0);
  }
  const Op* core = to.append(Kind::kPartitionId, {}, {type}, NoAttrs{}, reader.loc());
  if (ids == cores_.num_cores) {
    return *core;
  }
  return *to.append(counts_partitions ? Kind::kRemainder : Kind::kDivide,
                    {core->result(), number(cores_.partitions)->result()}, {type}, NoAttrs{},
                    reader.loc());
}

const Op& Normaliser::product_of_truths(const OpReader& reader, const DotAttrs& attrs,
                                        const Type& type, Region& to) const {
  const auto make = [&](Kind kind, std::vector<Value*> in, Type t, Attrs a) {
    return to.append(kind, std::move(in), {std::move(t)}, std::move(a), reader.loc())->result();
  };
  const bool truth = type.elem == Elem::kI1;
  std::vector<Value*> numbers;
  for (Value* v : operands(reader)) {
    const Elem elem = truth ? Elem::kBf16 : type.elem;
    numbers.push_back(make(Kind::kConvert, {v}, {elem, v->type.dims}, NoAttrs{}));
  }
  Value* sum = make(Kind::kDotGeneral, numbers, {truth ? Elem::kF32 : type.elem, type.dims}, attrs);
  return *(truth ? make(Kind::kConvert, {sum}, type, NoAttrs{}) : sum)->def;
}

void Normaliser::convert_regions_of_call(const OpReader& reader) const {
  if (!reader.raw().regions.empty()) {
    reader.fail("composites with regions are not supported; export the program without them");
  }
}

void Normaliser::convert_regions(const OpReader& reader, Op& out) {
  for (const RawRegion& region : reader.raw().regions) {
    if (region.ops.empty()) {
      reader.fail("an empty region");
    }
    Region* inner = out.add_region();
    for (const auto& arg : region.args) {
      values_[arg.value] = inner->add_arg(reader.type(arg.type));
    }
    convert_ops(region, *inner);
  }
}

Module normalise(const bytecode::RawModule& raw, const std::string& name,
                 const ImportOptions& options) {
  return Normaliser(raw, name, options).run();
}

}  // namespace tpu::compiler::frontend
