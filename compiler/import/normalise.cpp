// Raw VHLO ops to graph ops. Outside of jax.shard_map a program may hold ops on replicated values
// only: every core computes them. Functions that contain a shard_map are expanded where they are
// called.
#include "import/normalise.hpp"

#include <map>
#include <optional>
#include <set>

#include "import/attr_reader.hpp"
#include "import/codes.hpp"
#include "import/op_attrs.hpp"
#include "import/sharding.hpp"

namespace tpu::compiler::frontend {
namespace {

using bytecode::Dialect;
using bytecode::kNone;
using bytecode::RawOp;
using bytecode::RawRegion;

constexpr int kMaxCallDepth = 64;
constexpr int64_t kMaxCores = 4096;
constexpr const char* kShardMapInControl =
    "jax.shard_map inside of a loop, a branch or another jax.shard_map is not supported; put the "
    "loop or "
    "branch inside of the shard_map";
constexpr size_t kMaxOps = 2'000'000;  // expansion of calls must end in damaged files too

// "add_v1" -> "add"; names without version stay.
std::string base_name(std::string_view name) {
  const size_t at = name.rfind("_v");
  if (at == std::string_view::npos || at + 2 == name.size() ||
      name.find_first_not_of("0123456789", at + 2) != std::string_view::npos) {
    return std::string(name);
  }
  return std::string(name.substr(0, at));
}

std::string display_name(const RawOp& op) {
  switch (op.dialect) {
    case Dialect::kVhlo:
      return base_name(op.name) == "func" ? "func" : "stablehlo." + base_name(op.name);
    case Dialect::kSdy:
      return "sdy." + std::string(op.name);
    case Dialect::kBuiltin:
      return "builtin." + std::string(op.name);
    default:
      return std::string(op.name);
  }
}

class Normaliser {
 public:
  Normaliser(const bytecode::RawModule& raw, const std::string& name)
      : raw_(raw), tables_(raw), shardings_(tables_), values_(raw.num_values, nullptr) {
    out_.name = name;
  }

  Module run() {
    if (raw_.module.regions.size() != 1) {
      throw Error("the artifact is damaged: the module has no body");
    }
    core_counts();
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
    const auto main = functions_.find("main");
    if (main == functions_.end()) {
      throw Error("the artifact has no function 'main'");
    }
    convert_main(*main->second);
    for (const auto& [function_name, op] : functions_) {
      if (function_name != "main" && !contains_manual(*op)) {
        try {
          convert_function(*op);
        } catch (const Error& e) {
          throw Error(e.message(), e.op(), nested_loc(caller_loc(function_name), e.loc()));
        }
      }
    }
    out_.mesh = shardings_.mesh();
    check_mesh();
    out_.number_ops();
    return std::move(out_);
  }

 private:
  // What is known of a value outside of shard_map, by value number. Arguments start undecided.
  struct Layout {
    bool decided = false;
    Sharding sharding;
    Type global;
    int argument = -1;
  };

  OpReader open(const RawOp& op) {
    return {tables_, op, display_name(op), nested_loc(outer_loc_, tables_.loc(op.loc))};
  }

  void core_counts() {
    const auto number = [&](std::string_view key) {
      const auto v = tables_.integer(tables_.entry(raw_.module.dictionary, key));
      if (v && (*v < 1 || *v > kMaxCores)) {
        throw Error("the artifact asks for an impossible number of devices");
      }
      return v.value_or(1);
    };
    cores_.partitions = number("mhlo.num_partitions");
    cores_.replicas = number("mhlo.num_replicas");
    if (cores_.partitions > 1 && cores_.replicas > 1) {
      throw Error(
          "programs with both replicas and partitions are not supported; use jax.shard_map");
    }
    cores_.num_cores = cores_.partitions * cores_.replicas;
    out_.num_cores = cores_.num_cores;
  }

  void check_mesh() const {
    const int64_t size = out_.mesh.size();
    if (!out_.mesh.axes.empty() && size != out_.num_cores) {
      throw Error("the mesh has " + std::to_string(size) + " devices but the program " +
                  std::to_string(out_.num_cores) + " partitions");
    }
  }

  // True if the op's regions hold a shard_map, directly or in a called function.
  bool contains_manual(const RawOp& op) {
    const auto known = has_manual_.emplace(&op, false);  // false also ends recursive calls
    if (!known.second) {
      return known.first->second;
    }
    bool found = false;
    for (const RawRegion& region : op.regions) {
      for (const RawOp& inner : region.ops) {
        const RawOp* callee = called_function(inner);
        found = found || (inner.dialect == Dialect::kSdy && inner.name == "manual_computation") ||
                (callee != nullptr && contains_manual(*callee)) || contains_manual(inner);
      }
    }
    has_manual_[&op] = found;
    return found;
  }

  const RawOp* called_function(const RawOp& op) const {
    if (op.dialect != Dialect::kVhlo || base_name(op.name) != "call") {
      return nullptr;
    }
    for (const auto& [key, value] : op.properties) {
      if (key == "callee") {
        const auto it = functions_.find(std::string(tables_.text(value).value_or("")));
        return it == functions_.end() ? nullptr : it->second;
      }
    }
    return nullptr;
  }

  // Where the function is called first; null if it is not.
  LocRef caller_loc(const std::string& callee) const {
    LocRef found;
    const auto look = [&](const Function& f) {
      walk(f.body, [&](const Op& op) {
        const auto* call = std::get_if<CallAttrs>(&op.attrs);
        if (!found && call != nullptr && call->callee == callee) {
          found = op.loc;
        }
      });
    };
    look(*out_.main);
    for (const auto& f : out_.functions) {
      look(*f);
    }
    return found;
  }

  static const RawRegion& body_of(const RawOp& op, const OpReader& reader) {
    if (op.regions.size() != 1 || op.regions[0].ops.empty()) {
      reader.fail("the body is missing");
    }
    return op.regions[0];
  }

  void convert_main(const RawOp& op) {
    const OpReader reader = open(op);
    const RawRegion& body = body_of(op, reader);
    out_.main = std::make_unique<Function>();
    Function& f = *out_.main;
    f.name = "main";
    f.loc = reader.loc();
    layouts_.assign(raw_.num_values, {});
    const auto arg_attrs = tables_.array(reader.property("arg_attrs"));
    for (size_t i = 0; i < body.args.size(); ++i) {
      const auto& arg = body.args[i];
      const Type type = arg_type(reader, body, i);
      values_[arg.value] = f.body.add_arg(type);
      ArgInfo info;
      info.name = tables_.loc(arg.loc)->path;
      info.global = type;
      Layout& layout = layouts_[arg.value];
      layout.global = type;
      layout.argument = static_cast<int>(i);
      if (arg_attrs && i < arg_attrs->size()) {
        read_arg_attrs(reader, (*arg_attrs)[i], info, layout);
      }
      f.args.push_back(std::move(info));
    }
    at_top_ = true;
    convert_ops(body, f.body);
    at_top_ = false;
    finish_results(reader, body.ops.back(), f);
    for (const auto& arg : body.args) {
      const Layout& layout = layouts_[arg.value];
      auto& info = f.args[static_cast<size_t>(layout.argument)];
      info.sharding = layout.sharding;
      f.body.args[static_cast<size_t>(layout.argument)]->type =
          local_type(reader, info.global, shardings_.mesh(), info.sharding);
    }
    assign_donations(f);
  }

  // Arguments have no place in the source: an error names the first op that uses the argument.
  Type arg_type(const OpReader& reader, const RawRegion& body, size_t i) {
    try {
      return reader.type(body.args[i].type);
    } catch (const Error& e) {
      const std::string name = tables_.loc(body.args[i].loc)->path;
      const std::string message = "argument " + std::to_string(i) +
                                  (name.empty() ? "" : " ('" + name + "')") + ": " + e.message();
      std::set<uint32_t> names = {body.args[i].value};
      if (const RawOp* user = first_use(body, names, 0)) {
        open(*user).fail(message);
      }
      reader.fail(message);
    }
  }

  // First op with a source line that uses one of the values; casts and calls are looked through.
  const RawOp* first_use(const RawRegion& region, std::set<uint32_t>& names, int depth) {
    for (const RawOp& op : region.ops) {
      for (size_t i = 0; i < op.operands.size(); ++i) {
        if (names.count(op.operands[i]) == 0) {
          continue;
        }
        if (op.dialect != Dialect::kBuiltin && !tables_.loc(op.loc)->frames.empty()) {
          return &op;
        }
        names.insert(op.results.begin(), op.results.end());
        const RawOp* callee = called_function(op);
        if (callee != nullptr && callee->regions.size() == 1 && depth < kMaxCallDepth &&
            i < callee->regions[0].args.size()) {
          std::set<uint32_t> inner = {callee->regions[0].args[i].value};
          if (const RawOp* user = first_use(callee->regions[0], inner, depth + 1)) {
            return user;
          }
        }
      }
    }
    return nullptr;
  }

  void read_arg_attrs(const OpReader& reader, uint32_t dictionary, ArgInfo& info, Layout& layout) {
    if (const auto alias = tables_.integer(tables_.entry(dictionary, "tf.aliasing_output"))) {
      info.alias_result = static_cast<int>(*alias);
      info.donated = true;
    }
    if (tables_.integer(tables_.entry(dictionary, "jax.buffer_donor")).value_or(0) != 0) {
      info.donated = true;
    }
    const uint32_t sharding = tables_.entry(dictionary, "sdy.sharding");
    if (sharding != kNone) {
      layout.sharding = shardings_.tensor(reader, sharding, info.global.dims.size());
      layout.decided = true;
    }
  }

  // Results of main: global types, shardings, names, and the graph's return.
  void finish_results(const OpReader& reader, const RawOp& ret, Function& f) {
    const auto res_attrs = tables_.array(reader.property("res_attrs"));
    for (size_t i = 0; i < ret.operands.size(); ++i) {
      Layout& l = layout(ret.operands[i]);
      l.decided = true;  // an argument that is returned as it is and not used: replicated
      ResultInfo info{"", l.global, l.sharding};
      if (res_attrs && i < res_attrs->size()) {
        const uint32_t dictionary = (*res_attrs)[i];
        info.name = tables_.text(tables_.entry(dictionary, "jax.result_info")).value_or("");
        const uint32_t wanted = tables_.entry(dictionary, "sdy.sharding");
        if (wanted != kNone) {
          const Sharding s = shardings_.tensor(reader, wanted, info.global.dims.size());
          if (s.dim_axes != info.sharding.dim_axes) {
            reader.fail(
                "result " + std::to_string(i) +
                " is wanted in another sharding than jax.shard_map gives; make out_specs and the "
                "sharding of the result equal");
          }
        }
      }
      f.results.push_back(std::move(info));
    }
  }

  // A donated argument without a fixed result takes the first free result of the same type and
  // sharding.
  static void assign_donations(Function& f) {
    std::set<int> taken;
    for (const ArgInfo& a : f.args) {
      taken.insert(a.alias_result);
    }
    for (ArgInfo& a : f.args) {
      for (size_t r = 0; a.donated && a.alias_result < 0 && r < f.results.size(); ++r) {
        const ResultInfo& result = f.results[r];
        if (taken.count(static_cast<int>(r)) == 0 && result.global == a.global &&
            result.sharding.dim_axes == a.sharding.dim_axes) {
          a.alias_result = static_cast<int>(r);
          taken.insert(a.alias_result);
        }
      }
    }
  }

  void convert_function(const RawOp& op) {
    const OpReader reader = open(op);
    const RawRegion& body = body_of(op, reader);
    auto f = std::make_unique<Function>();
    f->name = reader.text("sym_name");
    f->loc = reader.loc();
    for (size_t i = 0; i < body.args.size(); ++i) {
      const Type type = arg_type(reader, body, i);
      values_[body.args[i].value] = f->body.add_arg(type);
      f->args.push_back({"", type, {}, -1, false});
    }
    convert_ops(body, f->body);
    for (const Value* v : f->body.terminator()->operands) {
      f->results.push_back({"", v->type, {}});
    }
    out_.functions.push_back(std::move(f));
  }

  void convert_ops(const RawRegion& region, Region& to) {
    for (size_t i = 0; i < region.ops.size(); ++i) {
      const bool last = i + 1 == region.ops.size();
      const RawOp& op = region.ops[i];
      const bool is_return = (op.dialect == Dialect::kVhlo && base_name(op.name) == "return") ||
                             (op.dialect == Dialect::kSdy && op.name == "return");
      if (last != is_return) {
        open(op).fail(last ? "the region does not end with a return"
                           : "a return inside of a region");
      }
      convert_op(op, to);
    }
  }

  Value* operand(const OpReader& reader, size_t i) const {
    Value* v = values_[reader.raw().operands[i]];
    if (v == nullptr) {
      reader.fail("operand " + std::to_string(i) + " is not a tensor of this program");
    }
    return v;
  }

  std::vector<Value*> operands(const OpReader& reader) const {
    std::vector<Value*> out;
    for (size_t i = 0; i < reader.raw().operands.size(); ++i) {
      out.push_back(operand(reader, i));
    }
    return out;
  }

  void convert_op(const RawOp& op, Region& to) {
    const OpReader reader = open(op);
    if (++num_ops_ > kMaxOps) {
      reader.fail("the program has more than " + std::to_string(kMaxOps) + " ops");
    }
    if (op.dialect == Dialect::kBuiltin && op.name == "unrealized_conversion_cast") {
      identity(reader);
    } else if (op.dialect == Dialect::kSdy) {
      convert_sdy(reader, to);
    } else if (op.dialect != Dialect::kVhlo ||
               bytecode::op_properties(op.dialect, op.name) == nullptr) {
      reader.fail("this op is not known (" + std::string(op.name) + ", artifact of " +
                  raw_.producer + ")");
    } else if (at_top_ && called_function(op) != nullptr && contains_manual(*called_function(op))) {
      expand_call(reader, to);
    } else {
      convert_vhlo(reader, to);
    }
  }

  void identity(const OpReader& reader) {
    const RawOp& op = reader.raw();
    if (op.operands.size() != op.results.size()) {
      reader.fail("a cast must have as many results as operands");
    }
    for (size_t i = 0; i < op.results.size(); ++i) {
      values_[op.results[i]] = operand(reader, i);
      if (at_top_) {
        layouts_[op.results[i]] = layouts_[op.operands[i]];
        alias_[op.results[i]] = root(op.operands[i]);
      }
    }
  }

  // Arguments reach ops through casts: the layout is kept at the argument's own number.
  uint32_t root(uint32_t value) const {
    const auto it = alias_.find(value);
    return it == alias_.end() ? value : it->second;
  }
  Layout& layout(uint32_t value) { return layouts_[root(value)]; }

  void convert_sdy(const OpReader& reader, Region& to) {
    const RawOp& op = reader.raw();
    if (op.name == "return") {
      to.append(Kind::kReturn, operands(reader), {}, NoAttrs{}, reader.loc());
    } else if (op.name == "manual_computation" && at_top_) {
      manual_computation(reader, to);
    } else if ((op.name == "sharding_constraint" || op.name == "reshard") &&
               op.operands.size() == 1) {
      if (cores_.num_cores > 1) {
        const size_t rank = operand(reader, 0)->type.dims.size();
        const Sharding s = shardings_.tensor(reader, reader.property("sharding"), rank);
        if (!s.is_replicated()) {
          reader.fail("automatic partitioning is not supported; use jax.shard_map");
        }
      }
      identity(reader);
    } else if (op.name == "manual_computation") {
      reader.fail(kShardMapInControl);
    } else {
      reader.fail("this op is not supported");
    }
  }

  // The body joins the program of the core: its arguments are the local pieces of the operands.
  void manual_computation(const OpReader& reader, Region& to) {
    const RawOp& op = reader.raw();
    const RawRegion& body = body_of(op, reader);
    const auto in = shardings_.per_value(reader, "in_shardings");
    const auto out = shardings_.per_value(reader, "out_shardings");
    if (in.size() != op.operands.size() || body.args.size() != op.operands.size() ||
        out.size() != op.results.size()) {
      reader.fail("the numbers of operands, results and shardings differ");
    }
    for (size_t i = 0; i < op.operands.size(); ++i) {
      Value* v = operand(reader, i);
      Layout& l = layout(op.operands[i]);
      const Sharding s = shardings_.tensor(reader, in[i], l.global.dims.size());
      if (!l.decided) {
        l.decided = true;
        l.sharding = s;
      } else if (l.sharding.dim_axes != s.dim_axes) {
        reader.fail(
            "operand " + std::to_string(i) +
            " arrives in another sharding than in_specs says; pass it as an argument of the whole "
            "program, or compute it inside");
      }
      if (reader.type(body.args[i].type) != local_type(reader, l.global, shardings_.mesh(), s)) {
        reader.fail("operand " + std::to_string(i) + " has the wrong local shape");
      }
      if (l.argument >= 0) {
        v->type = reader.type(body.args[i].type);
      }
      values_[body.args[i].value] = v;
    }
    shardings_.check_manual_axes(reader);
    const LocRef saved = outer_loc_;
    at_top_ = false;
    outer_loc_ = reader.loc();
    Region inner;
    convert_ops(body, inner);
    outer_loc_ = saved;
    at_top_ = true;
    const std::vector<Value*> returned = inner.terminator()->operands;
    inner.ops.pop_back();
    for (auto& moved : inner.ops) {
      moved->parent = &to;
      to.ops.push_back(std::move(moved));
    }
    if (returned.size() != op.results.size()) {
      reader.fail("the body returns another number of values");
    }
    for (size_t i = 0; i < op.results.size(); ++i) {
      Layout& l = layouts_[op.results[i]];
      l.global = reader.type(op.result_types[i]);
      l.sharding = shardings_.tensor(reader, out[i], l.global.dims.size());
      l.decided = true;
      if (returned[i]->type != local_type(reader, l.global, shardings_.mesh(), l.sharding)) {
        reader.fail("result " + std::to_string(i) + " has the wrong local shape");
      }
      values_[op.results[i]] = returned[i];
    }
  }

  // A function with a shard_map in it, called from main: its ops are converted here, once per call.
  void expand_call(const OpReader& reader, Region& to) {
    const RawOp& op = reader.raw();
    const RawOp& callee = *called_function(op);
    const RawRegion& body = body_of(callee, reader);
    if (++call_depth_ > kMaxCallDepth || body.args.size() != op.operands.size()) {
      reader.fail("a call that cannot be expanded");
    }
    for (size_t i = 0; i < op.operands.size(); ++i) {
      values_[body.args[i].value] = operand(reader, i);
      layouts_[body.args[i].value] = layout(op.operands[i]);
      alias_[body.args[i].value] = root(op.operands[i]);
    }
    const LocRef saved = outer_loc_;
    outer_loc_ = reader.loc();
    Region inner;
    convert_ops(body, inner);
    outer_loc_ = saved;
    --call_depth_;
    inner.ops.pop_back();
    for (auto& moved : inner.ops) {
      moved->parent = &to;
      to.ops.push_back(std::move(moved));
    }
    const RawOp& ret = body.ops.back();
    if (ret.operands.size() != op.results.size()) {
      reader.fail("the callee returns another number of values");
    }
    for (size_t i = 0; i < op.results.size(); ++i) {
      values_[op.results[i]] = values_[ret.operands[i]];
      layouts_[op.results[i]] = layout(ret.operands[i]);
      alias_[op.results[i]] = root(ret.operands[i]);
    }
  }

  // Ops outside of shard_map run on every core, so their operands must be whole.
  void require_replicated(const OpReader& reader) {
    for (size_t i = 0; i < reader.raw().operands.size(); ++i) {
      Layout& l = layout(reader.raw().operands[i]);
      l.decided = true;
      if (!l.sharding.is_replicated()) {
        reader.fail("an op outside of jax.shard_map works on a sharded array (operand " +
                    std::to_string(i) +
                    "); automatic partitioning is not supported, move the op inside");
      }
    }
  }

  void convert_vhlo(const OpReader& reader, Region& to) {
    const RawOp& op = reader.raw();
    const std::string name = base_name(op.name);
    if (name == "broadcast" || name == "dot") {
      convert_old_form(reader, name, to);
      return;
    }
    const auto kind = kind_from_name(name);
    if (!kind) {
      reader.fail("this op is not supported");
    }
    if (called_function(op) != nullptr && contains_manual(*called_function(op))) {
      reader.fail(kShardMapInControl);
    }
    if (at_top_ && *kind != Kind::kReturn) {
      require_replicated(reader);
    }
    std::vector<Type> types;
    for (const uint32_t t : op.result_types) {
      types.push_back(reader.type(t));
    }
    if ((*kind == Kind::kPartitionId || *kind == Kind::kReplicaId) && types.size() == 1) {
      define_results(reader, core_number(reader, *kind, types[0], to));
      return;
    }
    Op* out = to.append(*kind, operands(reader), std::move(types),
                        convert_attrs(*kind, reader, cores_), reader.loc());
    if (*kind == Kind::kCustomCall) {
      reader.fail("custom_call target '" + out->as<CustomCallAttrs>().target +
                  "' is not supported");
    }
    if (*kind == Kind::kComposite || *kind == Kind::kCall) {
      convert_regions_of_call(reader);
    } else {
      convert_regions(reader, *out);
    }
    define_results(reader, *out);
  }

  // The core's own number is partition_id; the id that does not count cores is 0.
  const Op& core_number(const OpReader& reader, Kind kind, const Type& type, Region& to) const {
    const int64_t ids = kind == Kind::kPartitionId ? cores_.partitions : cores_.replicas;
    if (ids == 1) {
      return *to.append(Kind::kConstant, {}, {type}, ConstantAttrs{make_splat_int(type, 0)},
                        reader.loc());
    }
    return *to.append(Kind::kPartitionId, {}, {type}, NoAttrs{}, reader.loc());
  }

  void convert_regions_of_call(const OpReader& reader) const {
    if (!reader.raw().regions.empty()) {
      reader.fail("composites with regions are not supported");
    }
  }

  void convert_regions(const OpReader& reader, Op& out) {
    const bool top = at_top_;
    at_top_ = false;
    for (const RawRegion& region : reader.raw().regions) {
      if (region.ops.empty()) {
        reader.fail("an empty region");
      }
      Region* inner = out.add_region();
      for (const auto& arg : region.args) {
        values_[arg.value] = inner->add_arg(reader.type(arg.type));
      }
      convert_ops(region, *inner);
      if (top) {
        require_captured_replicated(reader, region, 0);
      }
    }
    at_top_ = top;
  }

  void require_captured_replicated(const OpReader& reader, const RawRegion& region, int depth) {
    for (const RawOp& op : region.ops) {
      for (const uint32_t v : op.operands) {
        Layout& l = layout(v);
        l.decided = true;
        if (!l.sharding.is_replicated()) {
          reader.fail("an op outside of jax.shard_map works on a sharded array; move it inside");
        }
      }
      for (const RawRegion& inner : op.regions) {
        require_captured_replicated(reader, inner, depth + 1);
      }
    }
  }

  void define_results(const OpReader& reader, const Op& out) {
    const RawOp& op = reader.raw();
    for (size_t i = 0; i < op.results.size(); ++i) {
      values_[op.results[i]] = out.result(i);
      if (at_top_) {
        Layout& l = layouts_[op.results[i]];
        l.decided = true;
        l.global = out.type(i);
      }
    }
  }

  // Ops of old artifacts that are special cases of others.
  void convert_old_form(const OpReader& reader, const std::string& name, Region& to) {
    const RawOp& op = reader.raw();
    if (at_top_) {
      require_replicated(reader);
    }
    const bool is_dot = name == "dot";
    if (op.operands.size() != (is_dot ? 2u : 1u) || op.result_types.size() != 1) {
      reader.fail("wrong number of operands or results");
    }
    const Type type = reader.type(op.result_types[0]);
    Op* out = nullptr;
    if (is_dot) {
      const int64_t rank = operand(reader, 0)->type.rank();
      if (rank < 1) {
        reader.fail("operands of a dot must have a dimension");
      }
      DotAttrs a;
      a.lhs_contract = {rank - 1};
      a.rhs_contract = {0};
      out = to.append(Kind::kDotGeneral, operands(reader), {type}, a, reader.loc());
    } else {
      const int64_t in_rank = operand(reader, 0)->type.rank();
      DimsAttrs a;
      for (int64_t d = 0; d < in_rank; ++d) {
        a.dims.push_back(type.rank() - in_rank + d);
      }
      out = to.append(Kind::kBroadcastInDim, operands(reader), {type}, a, reader.loc());
    }
    define_results(reader, *out);
  }

  const bytecode::RawModule& raw_;
  Tables tables_;
  ShardingReader shardings_;
  CoreCounts cores_;
  Module out_;
  std::map<std::string, const RawOp*> functions_;
  std::map<const RawOp*, bool> has_manual_;
  std::vector<Value*> values_;   // by value number
  std::vector<Layout> layouts_;  // by value number; only for values outside of shard_map
  std::map<uint32_t, uint32_t> alias_;
  LocRef outer_loc_;     // of the enclosing shard_map or expanded call
  bool at_top_ = false;  // converting ops outside of shard_map
  int call_depth_ = 0;
  size_t num_ops_ = 0;
};

}  // namespace

Module normalise(const bytecode::RawModule& raw, const std::string& name) {
  return Normaliser(raw, name).run();
}

}  // namespace tpu::compiler::frontend
