// Sizes of dimensions that are known at run time only: see opcodes.hpp. An array with one is
// refused by its type. Only where scatters alone read it, as indices and updates, the program can
// do without: PyTorch/XLA writes masked_scatter so.
#include <algorithm>

#include "import/codes.hpp"
#include "import/hlo/opcodes.hpp"

namespace tpu::compiler::hlo::sizes {
namespace {

constexpr int64_t kLess = 5, kSigned = 3;  // of compare

size_t num_inputs(const Instruction& scatter) { return scatter.operands.size() / 2; }

size_t position(const Step& step) {
  return static_cast<size_t>(&step.at - step.scope.computation.instructions.data());
}

// True if anything but the indices and updates of scatters reads it.
bool read_elsewhere(const Step& step) {
  const std::vector<Instruction>& all = step.scope.computation.instructions;
  std::optional<std::vector<bool>>& known = step.scope.read_elsewhere;
  if (!known) {
    known.emplace(all.size());
    (*known)[step.scope.computation.root] = true;
    for (const Instruction& reader : all) {
      const size_t first = reader.opcode == "scatter" ? num_inputs(reader) : reader.operands.size();
      for (size_t i = 0; i < std::min(first, reader.operands.size()); ++i) {
        (*known)[reader.operands[i]] = true;
      }
    }
  }
  return (*known)[position(step)];
}

// Which of the dimensions that are not in `others` it is; nothing: one of `others`.
std::optional<size_t> number_among(const Ints& others, int64_t dim) {
  if (std::find(others.begin(), others.end(), dim) != others.end()) {
    return std::nullopt;
  }
  return static_cast<size_t>(dim) -
         static_cast<size_t>(
             std::count_if(others.begin(), others.end(), [&](int64_t d) { return d < dim; }));
}

// True if all updates end with the indices.
bool ends_with_indices(const Step& step, const Bundle& indices) {
  const IndexDimensions& d = *step.at.scatter;
  const auto row = number_among({d.index_vector_dim}, indices.size->dim);
  const int64_t type = indices.shape->type;
  if (!row || d.map.empty() || (type != primitive::kS32 && type != primitive::kS64)) {
    return false;
  }
  for (size_t i = num_inputs(step.at) + 1; i < step.num_operands(); ++i) {
    const std::optional<RunTimeSize>& size = step.operand(i).size;
    if (!size || size->value != indices.size->value || number_among(d.window, size->dim) != row) {
      return false;
    }
  }
  return true;
}

// Arrays of these types, which the import refuses.
void refuse(const Step& step) {
  for (size_t i = num_inputs(step.at); i < step.num_operands(); ++i) {
    const Bundle& array = step.operand(i);
    if (array.size) {
      RawOp op = step.op("set_dimension_size_v1");
      op.operands = {array.leaves[0], array.size->value};
      op.properties.emplace_back("dimension", step.build().integer(array.size->dim));
      step.add(std::move(op), *array.shape);
    }
  }
}

uint32_t broadcast(const Step& step, uint32_t value, const Shape& to) {
  RawOp op = step.op("broadcast_in_dim_v1");
  op.operands = {value};
  op.properties.emplace_back("broadcast_dimensions", step.build().list({}));
  return step.add(std::move(op), to);
}

uint32_t without_those_beyond(const Step& step, const Bundle& indices, const Shape& whole) {
  Shape places, truths;
  places.type = primitive::kS32;
  truths.type = primitive::kPred;
  places.dims = truths.dims = whole.dims;
  RawOp iota = step.op("iota_v1");
  iota.properties.emplace_back("iota_dimension", step.build().integer(indices.size->dim));
  RawOp compare = step.op("compare_v1");
  compare.operands = {step.add(std::move(iota), places),
                      broadcast(step, indices.size->value, places)};
  compare.properties = {
      {"comparison_direction",
       step.build().enumeration(bytecode::vhlo_attr::kCompareDirection, kLess)},
      {"compare_type", step.build().enumeration(bytecode::vhlo_attr::kCompareType, kSigned)}};
  Shape number;
  number.type = whole.type;
  RawOp convert = step.op("convert_v1");
  convert.operands = {step.constant({-1}, {})};
  const uint32_t nowhere = step.add(std::move(convert), number);
  RawOp select = step.op("select_v1");
  select.operands = {step.add(std::move(compare), truths), indices.leaves[0],
                     broadcast(step, nowhere, whole)};
  return step.add(std::move(select), whole);
}

}  // namespace

void set_dimension_size(const Step& step, std::string_view vhlo) {
  const Shape& whole = step.shape(0);
  Ints dims = step.at.shape.dims;
  const auto dim = static_cast<size_t>(step.dim());
  const bool sized = dim < dims.size() && dims[dim] == kDynamic && dims.size() == whole.dims.size();
  if (sized) {
    dims[dim] = whole.dims[dim];
  }
  if (sized && dims == whole.dims && step.shape(1).type == primitive::kS32 &&
      step.shape(1).dims.empty() && !read_elsewhere(step)) {
    step.define(std::vector<uint32_t>{step.value(0)});
    step.scope.values[position(step)].size = RunTimeSize{step.value(1), step.dim()};
    return;
  }
  RawOp op = step.with_operands(vhlo);
  op.properties.emplace_back("dimension", step.build().integer(step.dim()));
  step.finish(std::move(op));
}

std::vector<uint32_t> scatter_operands(const Step& step) {
  std::vector<uint32_t> operands = step.values();
  const size_t inputs = num_inputs(step.at);
  const auto sized = [&](uint32_t i) { return step.scope.values[i].size.has_value(); };
  if (std::none_of(step.at.operands.begin(), step.at.operands.end(), sized)) {
    return operands;
  }
  const Bundle& indices = step.operand(inputs);
  if (!indices.size || !ends_with_indices(step, indices)) {
    refuse(step);
    return operands;
  }
  const Instruction& set = step.scope.computation.instructions[step.at.operands[inputs]];
  operands[inputs] = without_those_beyond(step, indices, *step.scope.values[set.operands[0]].shape);
  return operands;
}

}  // namespace tpu::compiler::hlo::sizes
