// Shardings in GSPMD's language (gspmd.hpp) to what Shardy says: constraints and manual
// computations of the global graph. See import_parts.hpp.
//
//   %1 = custom_call @Sharding(%0) {S}                 %4 = manual_computation %0 {in=(S), out=(T)}
//   %2 = custom_call @SPMDFullToShardShape(%1)    =>     (%2) { %3 = call @body %2; return %3 }
//   %3 = call @body(%2)
//   %4 = custom_call @SPMDShardToFullShape(%3) {T}
#include <algorithm>
#include <charconv>

#include "import/import_parts.hpp"

namespace tpu::compiler::frontend {

namespace {

// The dimensions of "unspecified_dims=[0,2]", which may be cut further.
void read_open_dims(std::string_view config, size_t rank, ShardingAttrs& attrs) {
  constexpr std::string_view kKey = "unspecified_dims=[";
  const size_t at = config.find(kKey);
  if (at == std::string_view::npos) {
    return;
  }
  attrs.open.assign(rank, false);
  const char* next = config.data() + at + kKey.size();
  const char* end = config.data() + config.size();
  for (size_t dim = 0; next < end && *next != ']'; ++next) {
    const auto [behind, error] = std::from_chars(next, end, dim);
    if (error == std::errc() && dim < rank) {
      attrs.open[dim] = true;
    }
    next = error == std::errc() ? behind - 1 : next;
  }
}

}  // namespace

GspmdSharding GspmdOps::sharding_of(const OpReader& reader, size_t rank) {
  const uint32_t shardy = tables_.entry(reader.raw().dictionary, "sdy.sharding");
  if (shardy != bytecode::kNone) {  // of an HLO module that Shardy's operations were written to
    GspmdSharding sharding;
    sharding.attrs = shardings_.tensor(reader, shardy, rank);
    if (reader.has("manual_axes")) {
      sharding.manual_axes = shardings_.manual_axes(reader, shardy);
    }
    return sharding;
  }
  const auto text = tables_.text(tables_.entry(reader.raw().dictionary, "mhlo.sharding"));
  if (!text) {
    reader.fail("the attribute 'mhlo.sharding' is missing");
  }
  try {
    GspmdSharding sharding = read_gspmd(*text, rank, cores_.partitions, atoms_);
    read_open_dims(reader.text("backend_config"), rank, sharding.attrs);
    return sharding;
  } catch (const Error& e) {
    reader.contradict(e.message());
  }
}

bool GspmdOps::convert_custom_call(const OpReader& reader, Region& to) {
  const RawOp& op = reader.raw();
  const std::string_view target = custom_call_target(tables_, op);
  if (target != kGspmdConstraint && target != kGspmdEnter && target != kGspmdLeave) {
    return false;
  }
  if (op.operands.size() != 1 || op.results.size() != 1) {
    reader.fail("wrong number of operands or results: expected 1 and 1, found " +
                std::to_string(op.operands.size()) + " and " + std::to_string(op.results.size()));
  }
  if (target == kGspmdLeave && values_[op.results[0]] == nullptr) {
    reader.fail("the operand is not the result of a call that jax.shard_map generates");
  }
  if (target != kGspmdConstraint) {
    return true;  // the call between has it, or takes it
  }
  if (gspmd_.belongs(op) && values_[op.operands[0]] == nullptr) {
    return true;  // in front of an exit
  }
  const Type type = operand(reader, 0)->type;
  const GspmdSharding sharding = sharding_of(reader, type.dims.size());
  const bool says_nothing = sharding.manual || sharding.unknown ||
                            (type.dims.empty() && sharding.attrs.sharding.unreduced.empty());
  if (gspmd_.belongs_alone(op) || cores_.partitions == 1 || says_nothing) {
    identity(reader);
  } else {
    check_group(reader, sharding.attrs.group, type.dims);
    define_results(reader, *to.append(Kind::kShardingConstraint, operands(reader), {type},
                                      sharding.attrs, reader.loc()));
  }
  return true;
}

bool GspmdOps::is_shard_map(const RawOp& call) const {
  const auto enters = [&](uint32_t v) { return gspmd_.entry(v) != nullptr; };
  const auto leaves = [&](uint32_t v) { return !gspmd_.exits(v).empty(); };
  return std::any_of(call.operands.begin(), call.operands.end(), enters) ||
         std::any_of(call.results.begin(), call.results.end(), leaves);
}

// The operand of the body that `entry` makes: the whole array, how it is cut, and along which axes
// the body is manual.
Value* GspmdOps::enter(const RawOp& entry, ManualAttrs& attrs, std::vector<GspmdSharding>& axes) {
  const OpReader reader = open(entry);
  Value* whole = operand(reader, 0);
  const size_t rank = whole->type.dims.size();
  const RawOp* constraint = gspmd_.sharding_of(entry);
  if (constraint == nullptr) {
    reader.fail("no custom_call @Sharding precedes it");
  }
  attrs.in.push_back(sharding_of(open(*constraint), rank).attrs);
  axes.push_back(sharding_of(reader, rank));
  return whole;
}

void GspmdOps::add_manual_axes(const GspmdSharding& of, ManualAttrs& attrs) const {
  std::vector<int> axes = of.manual_axes;
  for (size_t i = 0; of.manual && i < atoms_.mesh().axes.size(); ++i) {
    axes.push_back(static_cast<int>(i));
  }
  for (const int axis : axes) {
    if (std::find(attrs.manual_axes.begin(), attrs.manual_axes.end(), axis) ==
        attrs.manual_axes.end()) {
      attrs.manual_axes.push_back(axis);
    }
  }
}

void GspmdOps::set_manual_axes(const std::vector<GspmdSharding>& said, ManualAttrs& attrs) {
  if (cores_.partitions > 1) {
    adopt_devices(cores_.partitions, atoms_);  // the program may say nothing of its mesh
  }
  for (const GspmdSharding& sharding : said) {
    add_manual_axes(sharding, attrs);
  }
  if (said.empty()) {  // a body without operands is manual along all axes
    add_manual_axes({{}, true, {}, false}, attrs);
  }
}

void GspmdOps::convert_shard_map(const OpReader& reader, Region& to) {
  const RawOp& call = reader.raw();
  ManualAttrs attrs;
  std::vector<Value*> arrays;
  std::vector<GspmdSharding> manual;  // they say along which axes; read when all shardings are
  for (const uint32_t value : call.operands) {
    if (const RawOp* entry = gspmd_.entry(value)) {
      arrays.push_back(enter(*entry, attrs, manual));
    }
  }
  std::vector<Type> types;
  std::vector<uint32_t> leaving;    // results of the manual computation
  std::vector<size_t> left_behind;  // those of the call
  for (size_t i = 0; i < call.results.size(); ++i) {
    for (const RawOp* exit : gspmd_.exits(call.results[i])) {
      const OpReader out = open(*exit);
      types.push_back(out.type(exit->result_types.at(0)));
      const GspmdSharding sharding = sharding_of(out, types.back().dims.size());
      attrs.out.push_back(sharding.attrs);
      if (attrs.in.empty() && out.has("manual_axes")) {
        manual.push_back(sharding);
      }
      leaving.push_back(exit->results[0]);
      left_behind.push_back(i);
    }
  }
  set_manual_axes(manual, attrs);
  Op* computation = to.append(Kind::kManualComputation, arrays, types, attrs, reader.loc());
  Region* inner = computation->add_region();
  for (const uint32_t value : call.operands) {
    if (const RawOp* entry = gspmd_.entry(value)) {
      values_[value] = inner->add_arg(open(*entry).type(entry->result_types.at(0)));
    }
  }
  std::vector<Type> local;
  for (const uint32_t t : call.result_types) {
    local.push_back(reader.type(t));
  }
  const Op* body = inner->append(Kind::kCall, operands(reader), local,
                                 convert_attrs(Kind::kCall, reader, cores_), reader.loc());
  std::vector<Value*> returned;
  for (const size_t i : left_behind) {
    returned.push_back(body->result(i));
  }
  inner->append(Kind::kReturn, returned, {}, NoAttrs{}, reader.loc());
  for (const uint32_t value : call.operands) {
    if (gspmd_.entry(value) != nullptr) {
      values_[value] = nullptr;  // another call makes its own
    }
  }
  for (size_t i = 0; i < leaving.size(); ++i) {
    values_[leaving[i]] = computation->result(i);
  }
}

}  // namespace tpu::compiler::frontend
