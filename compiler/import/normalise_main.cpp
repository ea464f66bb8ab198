// The interface of the program: arguments and results of main with their shardings and donations,
// and where to point at when an argument is refused. See import_parts.hpp.
#include <algorithm>

#include "import/import_parts.hpp"
#include "import/layouts.hpp"
#include "ir/error_kinds.hpp"

namespace tpu::compiler::frontend {

using bytecode::Dialect;
using bytecode::kNone;

namespace {

// True if `found` is what `wanted` says, dimensions that this leaves open aside.
bool may_be(const ShardingAttrs& wanted, const Sharding& found) {
  const Sharding& own = wanted.sharding;
  const std::vector<int> whole;
  bool same = own.unreduced == found.unreduced && own.order == found.order;
  for (size_t d = 0; d < std::max(own.dim_axes.size(), found.dim_axes.size()); ++d) {
    const bool open = d < wanted.open.size() && wanted.open[d];
    same = same && (open || (d < own.dim_axes.size() ? own.dim_axes[d] : whole) ==
                                (d < found.dim_axes.size() ? found.dim_axes[d] : whole));
  }
  return same;
}

}  // namespace

// What JAX passes for a token of an ordered effect, and takes as one: an array of no truths.
static const Type kTokenAtHost{Elem::kI1, {0}};

// JAX pairs an argument with a result whose part on a core has its type: the whole arrays may be of
// two types, and how results lie that the program leaves open it does not know. Such a donation
// goes to what fits in the end.
static void release_unlike(Function& f) {
  for (ArgInfo& arg : f.args) {
    const auto r = static_cast<size_t>(arg.alias_result);
    if (arg.alias_result >= 0 && r < f.results.size() && f.results[r].global != arg.global) {
      arg.alias_result = -1;
    }
  }
}

void MainInterface::convert(const RawOp& op, RegionConverter& regions) {
  const OpReader reader = open(op);
  const RawRegion& body = body_of(op, reader);
  out_.main = std::make_unique<Function>();
  Function& f = *out_.main;
  f.name = "main";
  f.loc = reader.loc();
  const auto arg_attrs = tables_.array(reader.property("arg_attrs"));
  for (size_t i = 0; i < body.args.size(); ++i) {
    const auto& arg = body.args[i];
    const Type type = arg_type(reader, body, i);
    const bool token = reader.is_token(arg.type);
    Value* taken = f.body.add_arg(token ? kTokenAtHost : type);
    values_[arg.value] = token ? made_token(reader.loc(), kTokenType, f.body) : taken;
    ArgInfo info;
    info.name = tables_.loc(arg.loc)->path;
    info.global = taken->type;
    same_.push_back(false);
    if (arg_attrs && i < arg_attrs->size()) {
      read_arg_attrs(reader, body, i, (*arg_attrs)[i], info);
      same_.back() =
          tables_.integer(tables_.entry((*arg_attrs)[i], "mhlo.is_same_data_across_replicas"))
              .value_or(0) != 0;
    }
    f.args.push_back(std::move(info));
  }
  regions.convert_ops(body, f.body);
  finish_results(reader, body.ops.back(), f);
  if (options_.layouts) {
    lay_out(f);
  }
  if (cores_.num_cores > 1) {
    release_unlike(f);
  }
}

bool MainInterface::gives_token(const OpReader& reader, size_t i) const {
  const bytecode::RawAttr& of_main = tables_.attr(reader.property("function_type"));
  if (of_main.type == kNone) {
    return false;
  }
  const bytecode::RawType& type = tables_.raw().types[of_main.type];
  return type.num_inputs + i < type.types.size() &&
         reader.is_token(type.types[type.num_inputs + i]);
}

Type MainInterface::arg_type(const OpReader& reader, const RawRegion& body, size_t i) {
  try {
    return reader.type(body.args[i].type);
  } catch (const HbmExhausted& e) {
    const OpReader user = user_of_argument(reader, body, i);
    throw HbmExhausted(argument_text(body, i) + ": " + e.message(), user.name(), user.loc());
  } catch (const Error& e) {
    user_of_argument(reader, body, i).fail(argument_text(body, i) + ": " + e.message());
  }
}

OpReader MainInterface::user_of_argument(const OpReader& reader, const RawRegion& body, size_t i) {
  std::set<uint32_t> seen;
  const RawOp* user = first_use(body, body.args[i].value, seen);
  return user == nullptr ? reader : open(*user);
}

std::string MainInterface::argument_text(const RawRegion& body, size_t i) {
  const std::string name = tables_.loc(body.args[i].loc)->path;
  return "argument " + std::to_string(i) + (name.empty() ? "" : " ('" + name + "')");
}

const RawOp* MainInterface::first_use(const RawRegion& region, uint32_t value,
                                      std::set<uint32_t>& seen) {
  std::set<uint32_t> names = {value};
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
      if (callee != nullptr && callee->regions.size() == 1 && i < callee->regions[0].args.size() &&
          seen.insert(callee->regions[0].args[i].value).second) {
        const RawRegion& inner = callee->regions[0];
        if (const RawOp* user = first_use(inner, inner.args[i].value, seen)) {
          return user;
        }
      }
    }
  }
  return nullptr;
}

void MainInterface::read_arg_attrs(const OpReader& reader, const RawRegion& body, size_t i,
                                   uint32_t dictionary, ArgInfo& info) {
  if (const auto alias = tables_.integer(tables_.entry(dictionary, "tf.aliasing_output"))) {
    info.alias_result = static_cast<int>(*alias);
    info.donated = true;
  }
  if (tables_.integer(tables_.entry(dictionary, "jax.buffer_donor")).value_or(0) != 0) {
    info.donated = true;
  }
  try {
    info.wanted = wanted_sharding(reader, dictionary, info.global);
    info.layout = wanted_layout(dictionary, info.global);
    info.memory = memory_of(dictionary);
  } catch (const Unsupported& e) {
    user_of_argument(reader, body, i).fail(argument_text(body, i) + ": " + e.message());
  } catch (const Error& e) {
    user_of_argument(reader, body, i).contradict(argument_text(body, i) + ": " + e.message());
  }
}

std::optional<ShardingAttrs> MainInterface::wanted_sharding(const OpReader& reader,
                                                            uint32_t dictionary, const Type& type) {
  const size_t rank = type.dims.size();
  std::optional<ShardingAttrs> wanted;
  const uint32_t sharding = tables_.entry(dictionary, "sdy.sharding");
  if (sharding != kNone) {
    wanted = shardings_.tensor(reader, sharding, rank);
  }
  if (const auto text = tables_.text(tables_.entry(dictionary, "mhlo.sharding"))) {
    const GspmdSharding gspmd = read_gspmd(*text, rank, cores_.partitions, atoms_);
    if (gspmd.manual) {
      throw Error("the sharding '" + std::string(*text) +
                  "' is possible inside of jax.shard_map alone");
    }
    if (wanted && !gspmd.unknown && !may_be(*wanted, gspmd.attrs.sharding)) {
      throw Error("its sdy.sharding and its mhlo.sharding '" + std::string(*text) +
                  "' contradict each other; give one of them");
    }
    if (!wanted && !gspmd.unknown) {
      wanted = gspmd.attrs;
    }
  }
  if (wanted) {
    local_type(type, atoms_.mesh(), wanted->sharding, "", nullptr);  // throws if parts are unequal
  }
  return wanted;
}

Dims MainInterface::wanted_layout(uint32_t dictionary, const Type& type) const {
  const auto text = tables_.text(tables_.entry(dictionary, "mhlo.layout_mode"));
  return options_.layouts && text ? read_layout(*text, type.dims.size()) : Dims{};
}

MemoryKind MainInterface::memory_of(uint32_t dictionary) const {
  const auto text = tables_.text(tables_.entry(dictionary, "mhlo.memory_kind"));
  const auto kind = text ? memory_kind_of(*text) : MemoryKind::kDevice;
  if (!kind) {
    throw Error(unknown_memory_kind(*text));
  }
  return *kind;
}

void MainInterface::finish_results(const OpReader& reader, const RawOp& ret, Function& f) {
  const auto res_attrs = tables_.array(reader.property("res_attrs"));
  for (size_t i = 0; i < ret.operands.size(); ++i) {
    ResultInfo info;
    if (gives_token(reader, i)) {
      Value* token = made_token(reader.loc(), kTokenAtHost, f.body);
      std::swap(f.body.ops.back(), f.body.ops[f.body.ops.size() - 2]);
      f.body.terminator()->operands[i] = token;
    }
    info.global = f.body.terminator()->operands[i]->type;
    if (res_attrs && i < res_attrs->size()) {
      const uint32_t dictionary = (*res_attrs)[i];
      info.name = tables_.text(tables_.entry(dictionary, "jax.result_info")).value_or("");
      try {
        info.wanted = wanted_sharding(reader, dictionary, info.global);
        info.layout = wanted_layout(dictionary, info.global);
        info.memory = memory_of(dictionary);
      } catch (const Unsupported& e) {
        reader.fail("result " + std::to_string(i) + ": " + e.message());
      } catch (const Error& e) {
        reader.contradict("result " + std::to_string(i) + ": " + e.message());
      }
    }
    f.results.push_back(std::move(info));
  }
}

}  // namespace tpu::compiler::frontend
