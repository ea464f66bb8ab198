// Custom calls whose meaning is known: what JAX sends to a TPU for factorisations, approximate
// top-k and placements, and operations of HLO that StableHLO does not have. Every other target is
// refused by its name. See import_parts.hpp.
#include <algorithm>
#include <array>
#include <charconv>

#include "import/advice.hpp"
#include "import/import_parts.hpp"

namespace tpu::compiler::frontend {
namespace {

constexpr std::string_view kOwnPartitioning = "CustomSPMDPartitioning";
constexpr std::string_view kApproxTopK = "ApproxTopK";
constexpr std::string_view kSink = "dce_sink";  // jax.lax: a value that is made and not read
constexpr std::string_view kLayout = "LayoutConstraint";  // jax: how XLA should lay an array out

struct Target {
  std::string_view name;
  Kind kind;
  size_t operands, results;
};

constexpr std::array kMatrixTargets = std::to_array<Target>({
    {"Eigh", Kind::kEigh, 1, 2},
    {"LuDecomposition", Kind::kLu, 1, 3},
    {"ProductOfElementaryHouseholderReflectors", Kind::kHouseholderProduct, 2, 1},
    {"Qr", Kind::kQr, 1, 2},
});

// A program that was HLO (PyTorch/XLA) has operations for which StableHLO has no name, or had none
// when it was made, as custom calls "mhlo.NAME". These mean the same in CHLO.
constexpr std::string_view kMhlo = "mhlo.";
constexpr std::array kMhloOps = std::to_array<std::string_view>(
    {"acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "erf", "erf_inv", "sinh", "tan"});
constexpr std::string_view kMhloTopK = "topk";

std::string_view mhlo_op(std::string_view target) {
  const bool known = target.starts_with(kMhlo);
  const std::string_view name = known ? target.substr(kMhlo.size()) : std::string_view();
  return name == kMhloTopK || std::find(kMhloOps.begin(), kMhloOps.end(), name) != kMhloOps.end()
             ? name
             : std::string_view();
}

// "lower,sort,sweeps,tolerance", as in "1,1,100,1e-6".
EighAttrs eigh(const OpReader& reader) {
  const std::string text = reader.text("backend_config");
  std::array<double, 4> fields{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (size_t i = 0; i < fields.size(); ++i) {
    const auto [next, error] = std::from_chars(at, end, fields[i]);
    const bool more = next != end && *next == ',';
    if (error != std::errc() || more != (i + 1 < fields.size()) || !(fields[i] >= 0)) {
      reader.fail("the configuration of Eigh must be 'lower,sort,sweeps,tolerance', not '" + text +
                  "'");
    }
    at = next + (more ? 1 : 0);
  }
  constexpr double kMostSweeps = 1000;
  return {fields[0] != 0, fields[1] != 0, static_cast<int64_t>(std::min(fields[2], kMostSweeps)),
          fields[3]};
}

}  // namespace

void CustomCalls::convert(const OpReader& reader, Region& to) {
  const std::string target = reader.text("call_target_name");
  const auto known = std::find_if(kMatrixTargets.begin(), kMatrixTargets.end(),
                                  [&](const Target& t) { return t.name == target; });
  if (known != kMatrixTargets.end()) {
    const RawOp& op = reader.raw();
    if (op.operands.size() != known->operands || op.results.size() != known->results) {
      reader.fail("custom_call target '" + target + "' with other operands or results");
    }
    Attrs attrs = NoAttrs{};
    if (known->kind == Kind::kEigh) {
      attrs = eigh(reader);
    }
    std::vector<Type> types = result_types(reader);
    define_results(reader, *to.append(known->kind, operands(reader), std::move(types),
                                      std::move(attrs), reader.loc()));
  } else if (target == kOwnPartitioning) {
    own_partitioning(reader, to);
  } else if (target == kApproxTopK) {
    approx_top_k(reader, to);
  } else if (const std::string_view name = mhlo_op(target); !name.empty()) {
    op_of_mhlo(std::string(name), reader, to);
  } else if (is_resize(target)) {
    Value* resized = convert_resize(reader, operands(reader), result_types(reader), to);
    values_[reader.raw().results[0]] = resized;
  } else if (target == kSink && reader.raw().results.empty()) {
    // What nothing reads is not computed, whoever asks for it.
  } else if (target == kSink) {
    reader.fail("custom_call target 'dce_sink' with results");
  } else if (target == kLayout) {
    identity(reader);  // how arrays lie within a program is the compiler's own
  } else {             // check_target() knows no other
    device_placement(reader, to);
  }
}

void check_target(const OpReader& reader, const ImportOptions& options) {
  const std::string target = reader.text("call_target_name");
  const bool known = target == kApproxTopK || target == kPlacementTarget || target == kSink ||
                     target == kLayout || target == kGspmdConstraint || target == kGspmdEnter ||
                     target == kGspmdLeave || !mhlo_op(target).empty() || is_resize(target) ||
                     (target == kOwnPartitioning && options.own_partitioning) ||
                     std::any_of(kMatrixTargets.begin(), kMatrixTargets.end(),
                                 [&](const Target& t) { return t.name == target; });
  if (!known) {
    reader.fail("custom_call target '" + target + "' is not supported" +
                advice_for_custom_call(target));
  }
}

void CustomCalls::op_of_mhlo(const std::string& name, const OpReader& reader, Region& to) {
  if (name != kMhloTopK) {
    chlo_.convert_as(name, reader, to);
    return;
  }
  const uint32_t attributes = tables_.entry(reader.raw().dictionary, "mhlo.attributes");
  const auto k = tables_.integer(tables_.entry(attributes, "k"));
  const std::vector<Type> types = result_types(reader);
  if (!k || types.empty() || types[0].dims.empty() || types[0].dims.back() != *k) {
    reader.fail(
        "custom_call target 'mhlo.topk': the attribute k must be the size of the last dimension of "
        "the results");
  }
  chlo_.top_k(reader, tables_.integer(tables_.entry(attributes, "largest")).value_or(1) != 0, to);
}

// jax.experimental.custom_partitioning: who it is partitioned by is known where it is compiled.
void CustomCalls::own_partitioning(const OpReader& reader, Region& to) {
  if (cores_.replicas > 1) {
    reader.fail(
        "custom_partitioning in a program of several replicas is not supported; compile with "
        "num_replicas = 1");
  }
  const std::vector<Value*> arrays = operands(reader);
  CustomCallAttrs attrs{reader.text("call_target_name"), reader.text("backend_config"),
                        reader.boolean("has_side_effect")};
  for (const Value* v : arrays) {
    attrs.in.push_back(v->type);
  }
  attrs.out = result_types(reader);
  const uint32_t rule = tables_.entry(reader.raw().dictionary, "sdy.sharding_rule");
  if (rule != bytecode::kNone) {
    attrs.rule = shardings_.rule(reader, rule, attrs.in, attrs.out);
  }
  std::vector<Type> types = attrs.out;
  define_results(reader, *to.append(Kind::kCustomCall, arrays, std::move(types), std::move(attrs),
                                    reader.loc()));
}

// The exact answer is a legal approximation: a sort by the comparator, and the first results.
void CustomCalls::approx_top_k(const OpReader& reader, Region& to) {
  const RawOp& op = reader.raw();
  const auto called = tables_.array(reader.property("called_computations"));
  const auto comparator =
      called && called->size() == 1
          ? functions_.find(std::string(tables_.text((*called)[0]).value_or("")))
          : functions_.end();
  const auto dim = tables_.integer(
      tables_.entry(tables_.entry(op.dictionary, "mhlo.backend_config"), "reduction_dim"));
  const size_t arrays = op.results.size();
  if (comparator == functions_.end() || !dim || arrays == 0 || op.operands.size() != 2 * arrays) {
    reader.fail("this form of ApproxTopK is not supported; use jax.lax.top_k");
  }
  const std::vector<Type> types = result_types(reader);
  std::vector<Value*> in = operands(reader);
  in.resize(arrays);  // the rest are what an empty place would hold: there is none
  std::vector<Type> sorted;
  for (size_t i = 0; i < arrays; ++i) {
    const Type& all = in[i]->type;
    if (*dim < 0 || *dim >= all.rank() || types[i].rank() != all.rank() ||
        types[i].dims[static_cast<size_t>(*dim)] > all.dims[static_cast<size_t>(*dim)]) {
      reader.fail(
          "ApproxTopK: reduction_dim must be a dimension of the operands; the results must have "
          "the same rank and at most as many elements in it");
    }
    sorted.push_back(all);
  }
  Op* sort = to.append(Kind::kSort, in, sorted, SortAttrs{*dim, true}, reader.loc());
  const RawRegion& body = body_of(*comparator->second, open(*comparator->second));
  Region* inner = sort->add_region();
  for (const auto& arg : body.args) {
    values_[arg.value] = inner->add_arg(reader.type(arg.type));
  }
  regions_.convert_ops(body, *inner);
  for (size_t i = 0; i < arrays; ++i) {
    const Dims zero(types[i].dims.size(), 0), one(types[i].dims.size(), 1);
    values_[op.results[i]] = to.append(Kind::kSlice, {sort->result(i)}, {types[i]},
                                       SliceAttrs{zero, types[i].dims, one}, reader.loc())
                                 ->result();
  }
}

// What becomes of it follows from who makes and who reads the array: passes/host_memory.hpp.
void CustomCalls::device_placement(const OpReader& reader, Region& to) {
  const uint32_t attributes = tables_.entry(reader.raw().dictionary, "mhlo.frontend_attributes");
  const auto place = tables_.text(tables_.entry(attributes, "_xla_buffer_placement"));
  const auto kind = place ? memory_kind_of(*place) : MemoryKind::kDevice;
  const std::vector<Value*> arrays = operands(reader);
  if (!kind) {
    reader.fail(unknown_memory_kind(*place));
  }
  if (arrays.size() != 1 || result_types(reader) != std::vector<Type>{arrays[0]->type}) {
    reader.fail("expected one array as operand, and a result of its type");
  }
  const Type type = arrays[0]->type;
  define_results(reader, *to.append(Kind::kCustomCall, arrays, {type},
                                    CustomCallAttrs{std::string(kPlacementTarget),
                                                    std::string(memory_kind_name(*kind)),
                                                    false,
                                                    {type},
                                                    {type}},
                                    reader.loc()));
}

}  // namespace tpu::compiler::frontend
