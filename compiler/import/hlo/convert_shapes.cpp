// Opcodes that give arrays of arrays without arithmetic: see opcodes.hpp.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "import/codes.hpp"
#include "import/hlo/opcodes.hpp"
#include "import/hlo/types.hpp"

namespace tpu::compiler::hlo::shapes {
namespace {

// Which dimension each is in memory, major first.
Ints major_to_minor(const Shape& shape) {
  Ints order(shape.dims.size());
  std::iota(order.begin(), order.end(), 0);
  if (!shape.minor_to_major.empty()) {
    order.assign(shape.minor_to_major.rbegin(), shape.minor_to_major.rend());
  }
  return order;
}

bool in_order(const Ints& order) { return std::is_sorted(order.begin(), order.end()); }

Ints inverse(const Ints& order) {
  Ints out(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    out[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return out;
}

Shape reordered(const Shape& shape, const Ints& order) {
  Shape out;
  out.type = shape.type;
  for (const int64_t d : order) {
    out.dims.push_back(shape.dims[static_cast<size_t>(d)]);
  }
  return out;
}

uint32_t transposed(const Step& step, uint32_t value, const Ints& order, const Shape& to) {
  RawOp op = step.op("transpose_v1");
  op.operands = {value};
  op.properties.emplace_back("permutation", step.build().list(order));
  return step.add(std::move(op), to);
}

uint32_t unary(const Step& step, std::string_view vhlo, uint32_t value, const Shape& to) {
  RawOp op = step.op(vhlo);
  op.operands = {value};
  return step.add(std::move(op), to);
}

// Number of elements of a literal whose elements take `bytes`.
size_t count_of(const Step& step, const Literal& literal) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t count = 1;
  for (const int64_t d : literal.shape.dims) {
    if (d < 0 || d > kMost || (d > 0 && count > kMost / d)) {
      step.fail("its literal has the invalid shape " + to_string(literal.shape));
    }
    count *= d;
  }
  return static_cast<size_t>(count);
}

// Elements in row-major order, where the layout has another.
std::vector<std::byte> row_major(const Literal& literal, size_t bytes, size_t count) {
  const Ints order = major_to_minor(literal.shape);
  if (in_order(order) || count <= 1) {
    return literal.elements;
  }
  const size_t rank = order.size();
  std::vector<size_t> strides(rank);  // in the literal, by dimension
  size_t stride = 1;
  for (size_t i = rank; i-- > 0;) {
    const auto d = static_cast<size_t>(order[i]);
    strides[d] = stride;
    stride *= static_cast<size_t>(literal.shape.dims[d]);
  }
  std::vector<std::byte> out(literal.elements.size());
  Ints at(rank, 0);
  for (size_t i = 0; i < count; ++i) {
    size_t from = 0;
    for (size_t d = 0; d < rank; ++d) {
      from += static_cast<size_t>(at[d]) * strides[d];
    }
    std::memcpy(&out[i * bytes], &literal.elements[from * bytes], bytes);
    for (size_t d = rank; d-- > 0 && ++at[d] == literal.shape.dims[d];) {
      at[d] = 0;
    }
  }
  return out;
}

uint32_t one_constant(const Step& step, std::string_view vhlo, const Literal& literal,
                      const Shape& shape) {
  if (!same_arrays(literal.shape, shape)) {
    step.fail("its literal is of shape " + to_string(literal.shape) + ", expected " +
              to_string(shape));
  }
  const auto bytes = static_cast<size_t>(literal_bytes(shape.type));
  const size_t count = bytes == 0 ? 0 : count_of(step, literal);
  if (literal.elements.size() != count * bytes) {
    step.fail("its literal has " + std::to_string(literal.elements.size()) +
              " bytes of elements, expected " + std::to_string(count * bytes) + " for " +
              to_string(shape));
  }
  RawOp op = step.op(vhlo);
  const auto [value, added] = step.converter.constants.emplace(&literal, 0);
  if (added) {
    value->second =
        step.build().constant(row_major(literal, bytes, count), step.converter.type_of(shape));
  }
  op.properties.emplace_back("value", value->second);
  return step.add(std::move(op), shape);
}

void constants(const Step& step, std::string_view vhlo, const Literal& literal, const Shape& shape,
               std::vector<uint32_t>& leaves) {
  if (!shape.is_tuple()) {
    leaves.push_back(one_constant(step, vhlo, literal, shape));
    return;
  }
  if (literal.members.size() != shape.members.size()) {
    step.fail("its literal has " + std::to_string(literal.members.size()) + " members, expected " +
              std::to_string(shape.members.size()));
  }
  for (size_t i = 0; i < shape.members.size(); ++i) {
    constants(step, vhlo, literal.members[i], shape.members[i], leaves);
  }
}

}  // namespace

// Its values are those that whoever calls the computation gives.
void parameter(const Step&, std::string_view) {}

void constant(const Step& step, std::string_view vhlo) {
  if (step.at.literal == nullptr) {
    step.fail("its literal is missing");
  }
  std::vector<uint32_t> leaves;
  constants(step, vhlo, *step.at.literal, step.at.shape, leaves);
  step.define(std::move(leaves));
}

void iota(const Step& step, std::string_view vhlo) {
  RawOp op = step.op(vhlo);
  op.properties.emplace_back("iota_dimension", step.build().integer(step.dim()));
  step.finish(std::move(op));
}

void same(const Step& step, std::string_view) { step.define(step.operand(0)); }

void tuple(const Step& step, std::string_view) {
  const std::vector<Shape>& members = step.at.shape.members;
  if (!step.at.shape.is_tuple() || members.size() != step.num_operands()) {
    step.fail("its shape is " + to_string(step.at.shape) + ", expected a tuple of " +
              std::to_string(step.num_operands()) + " members");
  }
  for (size_t i = 0; i < step.num_operands(); ++i) {
    if (!same_arrays(members[i], step.shape(i))) {
      step.fail("member " + std::to_string(i) + " of its shape is " + to_string(members[i]) +
                ", expected " + to_string(step.shape(i)));
    }
  }
  std::vector<uint32_t> leaves;
  for (size_t i = 0; i < step.num_operands(); ++i) {
    const std::vector<uint32_t>& own = step.operand(i).leaves;
    leaves.insert(leaves.end(), own.begin(), own.end());
  }
  step.define(std::move(leaves));
}

void element(const Step& step, std::string_view) {
  const Bundle& from = step.operand(0);
  const auto index = step.at.tuple_index;
  if (!from.shape->is_tuple() || index < 0 || index >= std::ssize(from.shape->members)) {
    step.fail("member " + std::to_string(index) + " of " + to_string(*from.shape));
  }
  size_t first = 0;
  for (int64_t i = 0; i < index; ++i) {
    first += from.shape->members[static_cast<size_t>(i)].leaves;
  }
  const Shape& member = from.shape->members[static_cast<size_t>(index)];
  const auto begin = from.leaves.begin() + static_cast<std::ptrdiff_t>(first);
  step.define(
      Bundle{&member, {begin, begin + static_cast<std::ptrdiff_t>(member.leaves)}, nullptr});
}

// The bytes as they lie in memory, seen as another array: turned to the order of the memory, given
// the other shape, and turned back.
void bitcast(const Step& step, std::string_view) {
  const Shape& from = step.shape(0);
  const Shape& to = step.at.shape;
  if (from.is_tuple() || to.is_tuple()) {
    step.define(step.operand(0));
    return;
  }
  const int64_t bytes = literal_bytes(from.type);
  if (bytes == 0 || bytes != literal_bytes(to.type)) {
    step.fail("it makes " + to_string(to) + " of " + to_string(from) +
              ", expected elements of one size");
  }
  uint32_t value = step.value(0);
  const Ints source = major_to_minor(from), target = major_to_minor(to);
  Shape lying = reordered(from, source);
  if (!in_order(source)) {
    value = transposed(step, value, source, lying);
  }
  if (from.type != to.type) {
    lying.type = to.type;
    value = unary(step, "bitcast_convert_v1", value, lying);
  }
  const Shape wanted = reordered(to, target);
  if (lying.dims != wanted.dims) {
    value = unary(step, "reshape_v1", value, wanted);
  }
  if (!in_order(target)) {
    value = transposed(step, value, inverse(target), to);
  }
  step.define(std::vector<uint32_t>{value});
}

void broadcast(const Step& step, std::string_view vhlo) {
  RawOp op = step.with_operands(vhlo);
  op.properties.emplace_back("broadcast_dimensions", step.build().list(step.at.dims));
  step.finish(std::move(op));
}

void transpose(const Step& step, std::string_view vhlo) {
  RawOp op = step.with_operands(vhlo);
  op.properties.emplace_back("permutation", step.build().list(step.at.dims));
  step.finish(std::move(op));
}

void dimensions(const Step& step, std::string_view vhlo) {
  RawOp op = step.with_operands(vhlo);
  op.properties.emplace_back("dimensions", step.build().list(step.at.dims));
  step.finish(std::move(op));
}

void dimension(const Step& step, std::string_view vhlo) {
  RawOp op = step.with_operands(vhlo);
  op.properties.emplace_back("dimension", step.build().integer(step.dim()));
  step.finish(std::move(op));
}

void slice(const Step& step, std::string_view vhlo) {
  Ints start, limit, stride;
  for (const auto& [from, to, by] : step.at.slices) {
    start.push_back(from);
    limit.push_back(to);
    stride.push_back(by);
  }
  RawOp op = step.with_operands(vhlo);
  op.properties = {{"start_indices", step.build().list(start)},
                   {"limit_indices", step.build().list(limit)},
                   {"strides", step.build().list(stride)}};
  step.finish(std::move(op));
}

namespace {

// Indices one by one; the old form has them as one array, which is operand `first`.
std::vector<uint32_t> indices(const Step& step, size_t first) {
  if (step.num_operands() != first + 1 || step.shape(first).dims.size() != 1) {
    return step.values(first);
  }
  const Shape& list = step.shape(first);
  std::vector<uint32_t> each;
  Shape one = list, scalar = list;
  one.dims = {1};
  scalar.dims = {};
  constexpr int64_t kMostRank = 64;
  for (int64_t i = 0; i < std::min(list.dims[0], kMostRank); ++i) {
    RawOp cut = step.op("slice_v1");
    cut.operands = {step.value(first)};
    cut.properties = {{"start_indices", step.build().list({i})},
                      {"limit_indices", step.build().list({i + 1})},
                      {"strides", step.build().list({1})}};
    each.push_back(unary(step, "reshape_v1", step.add(std::move(cut), one), scalar));
  }
  return each;
}

}  // namespace

void dynamic_slice(const Step& step, std::string_view vhlo) {
  RawOp op = step.op(vhlo);
  op.operands = {step.value(0)};
  const std::vector<uint32_t> starts = indices(step, 1);
  op.operands.insert(op.operands.end(), starts.begin(), starts.end());
  op.properties.emplace_back("slice_sizes", step.build().list(step.at.slice_sizes));
  step.finish(std::move(op));
}

void dynamic_update_slice(const Step& step, std::string_view vhlo) {
  RawOp op = step.op(vhlo);
  op.operands = {step.value(0), step.value(1)};
  const std::vector<uint32_t> starts = indices(step, 2);
  op.operands.insert(op.operands.end(), starts.begin(), starts.end());
  step.finish(std::move(op));
}

void pad(const Step& step, std::string_view vhlo) {
  Ints low, high, interior;
  for (const auto& [before, behind, between] : step.at.padding) {
    low.push_back(before);
    high.push_back(behind);
    interior.push_back(between);
  }
  RawOp op = step.with_operands(vhlo);
  op.properties = {{"edge_padding_low", step.build().list(low)},
                   {"edge_padding_high", step.build().list(high)},
                   {"interior_padding", step.build().list(interior)}};
  step.finish(std::move(op));
}

void gather(const Step& step, std::string_view vhlo) {
  if (!step.at.gather) {
    step.fail("gather_dimension_numbers are missing");
  }
  const IndexDimensions& d = *step.at.gather;
  RawOp op = step.with_operands(vhlo);
  op.properties = {{"offset_dims", step.build().list(d.window)},
                   {"collapsed_slice_dims", step.build().list(d.collapsed)},
                   {"operand_batching_dims", step.build().list(d.operand_batching)},
                   {"start_indices_batching_dims", step.build().list(d.index_batching)},
                   {"start_index_map", step.build().list(d.map)},
                   {"slice_sizes", step.build().list(step.at.slice_sizes)},
                   {"index_vector_dim", step.build().integer(d.index_vector_dim)},
                   {"indices_are_sorted", step.build().integer(step.at.sorted)}};
  step.finish(std::move(op));
}

}  // namespace tpu::compiler::hlo::shapes
