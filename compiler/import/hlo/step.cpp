// One instruction under conversion: see converter.hpp.
#include <algorithm>
#include <array>
#include <iterator>

#include "import/codes.hpp"
#include "import/gspmd.hpp"
#include "import/hlo/converter.hpp"
#include "import/hlo/shardings.hpp"
#include "ir/error.hpp"
#include "ir/memory_kind.hpp"

namespace tpu::compiler::hlo {

using bytecode::Dialect;
using bytecode::kNone;

void Step::fail(const std::string& why) const {
  throw Error("the HLO module is damaged: computation '" + std::string(scope.computation.name) +
              "', instruction '" + std::string(at.name) + "' (" + std::string(at.opcode) +
              "): " + why);
}

void Step::refuse() const {
  RawOp refused = op(at.opcode);
  refused.dialect = Dialect::kHlo;
  refused.dialect_name = "hlo";
  for (const uint32_t i : at.operands) {
    const std::vector<uint32_t>& leaves = scope.values[i].leaves;
    std::copy_if(leaves.begin(), leaves.end(), std::back_inserter(refused.operands),
                 [](uint32_t v) { return v != kNone; });
  }
  finish(std::move(refused));
}

const Bundle& Step::operand(size_t i) const {
  if (i >= at.operands.size()) {
    fail("it has " + std::to_string(at.operands.size()) + " operands, expected at least " +
         std::to_string(i + 1));
  }
  return scope.values[at.operands[i]];
}

uint32_t Step::value(size_t i) const {
  const Bundle& bundle = operand(i);
  if (bundle.shape->is_tuple()) {
    fail("operand " + std::to_string(i) + " is the tuple " + to_string(*bundle.shape) +
         ", expected an array");
  }
  if (bundle.leaves.at(0) == kNone) {
    fail("operand " + std::to_string(i) + " has no value that a program can read");
  }
  return bundle.leaves[0];
}

std::vector<uint32_t> Step::values(size_t first) const {
  std::vector<uint32_t> all;
  for (size_t i = first; i < num_operands(); ++i) {
    const std::vector<uint32_t>& leaves = operand(i).leaves;
    if (std::find(leaves.begin(), leaves.end(), kNone) != leaves.end()) {
      fail("operand " + std::to_string(i) + " has no value that a program can read");
    }
    all.insert(all.end(), leaves.begin(), leaves.end());
  }
  return all;
}

uint32_t Step::called(size_t i) const {
  if (i >= at.called.size()) {
    fail("it calls " + std::to_string(at.called.size()) + " computations, expected at least " +
         std::to_string(i + 1));
  }
  return at.called[i];
}

int64_t Step::dim() const {
  if (at.dims.size() != 1) {
    fail("'dimensions' has " + std::to_string(at.dims.size()) + " entries, expected one");
  }
  return at.dims[0];
}

RawOp Step::op(std::string_view vhlo) const {
  RawOp op;
  op.dialect = Dialect::kVhlo;
  op.dialect_name = "vhlo";
  op.name = vhlo;
  op.loc = converter.loc_of(at, scope.computation);
  return op;
}

RawOp Step::with_operands(std::string_view vhlo) const {
  RawOp made = op(vhlo);
  made.operands = values();
  return made;
}

std::vector<uint32_t> Step::add(RawOp op, const std::vector<const Shape*>& results) const {
  for (const Shape* shape : results) {
    op.results.push_back(converter.new_value());
    op.result_types.push_back(converter.type_of(*shape));
  }
  std::vector<uint32_t> values = op.results;
  scope.to.push_back(std::move(op));
  return values;
}

uint32_t Step::add(RawOp op, const Shape& result) const {
  return add(std::move(op), std::vector<const Shape*>{&result})[0];
}

RawRegion Step::region(size_t called_at) const {
  return converter.region(called(called_at), scope.depth + 1);
}

void Step::define(std::vector<uint32_t> leaves) const {
  if (leaves.size() != at.shape.leaves) {
    fail("its shape " + to_string(at.shape) + " has " + std::to_string(at.shape.leaves) +
         " arrays, expected " + std::to_string(leaves.size()));
  }
  Bundle& made = scope.values[static_cast<size_t>(&at - scope.computation.instructions.data())];
  made.shape = &at.shape;
  made.leaves = std::move(leaves);
}

void Step::begin(const Shape& result, std::vector<uint32_t> leaves) const {
  if (leaves.size() != result.leaves) {
    fail("its result " + to_string(result) + " has " + std::to_string(result.leaves) +
         " arrays, expected " + std::to_string(leaves.size()));
  }
  define(std::vector<uint32_t>(at.shape.leaves, kNone));
  Bundle& made = scope.values[static_cast<size_t>(&at - scope.computation.instructions.data())];
  made.done_shape = &result;
  made.done = std::move(leaves);
}

void Step::define(const Bundle& same) const {
  if (!same_arrays(at.shape, *same.shape)) {
    fail("its shape is " + to_string(at.shape) + ", expected " + to_string(*same.shape) +
         ", that of its operand");
  }
  define(same.leaves);
}

void Step::finish(RawOp op) const { define(add(std::move(op), leaves_of(at.shape))); }

uint32_t Step::dictionary() const {
  std::vector<std::pair<std::string_view, uint32_t>> entries;
  if (at.sharding) {
    const GspmdTexts texts = gspmd_texts(*at.sharding, at.shape.leaves, *this);
    if (!texts.empty() && at.shape.leaves > 0) {
      entries.emplace_back("mhlo.sharding", converter.text(texts[0]));
    }
  }
  if (!at.attributes.empty()) {
    std::vector<std::pair<std::string_view, uint32_t>> frontend;
    for (const auto& [name, value] : at.attributes) {
      frontend.emplace_back(name, build().text(value));
    }
    entries.emplace_back("mhlo.frontend_attributes", build().dictionary(frontend));
  }
  return entries.empty() ? kNone : build().dictionary(entries);
}

void Step::constrain() const {
  // Those whose sharding is said otherwise: of arguments and results, in a dictionary, by members.
  constexpr std::array<std::string_view, 10> kElsewhere = {
      "after-all", "custom-call", "infeed", "outfeed",   "parameter",
      "recv",      "recv-done",   "send",   "send-done", "tuple"};
  if (!at.sharding || converter.of_shardy() ||
      std::find(kElsewhere.begin(), kElsewhere.end(), at.opcode) != kElsewhere.end()) {
    return;
  }
  // A member of what has a sharding itself.
  if (at.opcode == "get-tuple-element" &&
      scope.computation.instructions[at.operands[0]].sharding.has_value()) {
    return;
  }
  const std::vector<const Shape*> shapes = leaves_of(at.shape);
  const GspmdTexts texts = gspmd_texts(*at.sharding, shapes.size(), *this);
  Bundle& made = scope.values[static_cast<size_t>(&at - scope.computation.instructions.data())];
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!is_constraint(texts[i]) || shapes[i]->dims.empty() || made.leaves[i] == kNone) {
      continue;
    }
    RawOp constraint = op("custom_call_v1");
    constraint.operands = {made.leaves[i]};
    constraint.properties = {{"call_target_name", build().text(frontend::kGspmdConstraint)},
                             {"backend_config", build().text("")},
                             {"has_side_effect", build().integer(0)},
                             {"called_computations", build().array({})}};
    constraint.dictionary = build().dictionary({{"mhlo.sharding", converter.text(texts[i])}});
    made.leaves[i] = add(std::move(constraint), *shapes[i]);
  }
}

void Step::place() const {
  // Only these read arrays of one memory and make them in another; what computes, makes its result
  // in the device's.
  constexpr std::array<std::string_view, 6> kMoves = {"bitcast",       "copy",    "copy-done",
                                                      "dynamic-slice", "reshape", "slice"};
  if (std::find(kMoves.begin(), kMoves.end(), at.opcode) == kMoves.end() || at.shape.is_tuple()) {
    return;
  }
  const Shape* from = operand(0).shape;
  if (at.opcode == "copy-done") {  // target, source, and a context
    from = from->members.size() > 1 ? &from->members[1] : &at.shape;
  }
  if (from->in_host() == at.shape.in_host()) {
    return;
  }
  const MemoryKind kind = at.shape.in_host() ? MemoryKind::kPinnedHost : MemoryKind::kDevice;
  Bundle& made = scope.values[static_cast<size_t>(&at - scope.computation.instructions.data())];
  if (made.leaves.at(0) == kNone) {
    return;
  }
  RawOp placement = op("custom_call_v1");
  placement.operands = {made.leaves[0]};
  placement.properties = {{"call_target_name", build().text(kPlacementTarget)},
                          {"backend_config", build().text("")},
                          {"has_side_effect", build().integer(0)},
                          {"called_computations", build().array({})}};
  placement.dictionary = build().dictionary(
      {{"mhlo.frontend_attributes",
        build().dictionary({{"_xla_buffer_placement", build().text(memory_kind_name(kind))}})}});
  made.leaves[0] = add(std::move(placement), at.shape);
}

uint32_t Step::constant(const Ints& values, Ints dims) const {
  Shape shape;
  shape.type = primitive::kS64;
  shape.dims = dims;
  RawOp made = op("constant_v1");
  made.properties.emplace_back("value", build().tensor(values, std::move(dims)));
  return add(std::move(made), shape);
}

}  // namespace tpu::compiler::hlo
