// ShapeProto, LayoutProto and LiteralProto.
#include <algorithm>
#include <array>

#include "import/hlo/device_lists.hpp"
#include "import/hlo/read_parts.hpp"

namespace tpu::compiler::hlo {
namespace {

constexpr size_t kMostLeaves = 1 << 16;  // of one tuple

// Where a literal keeps its elements, by type: repeated numbers, or bytes as they lie in memory.
enum class Kept : uint8_t { kBytes, kBools, kNumbers32, kNumbers64, kReals32, kReals64 };
struct LiteralField {
  uint32_t field;
  int64_t type;
  Kept kept;
};
constexpr std::array kLiteralFields = std::to_array<LiteralField>({
    {2, primitive::kPred, Kept::kBools},
    {3, 6, Kept::kBytes},  // U8
    {4, primitive::kS32, Kept::kNumbers32},
    {5, primitive::kS64, Kept::kNumbers64},
    {6, primitive::kU32, Kept::kNumbers32},
    {7, primitive::kU64, Kept::kNumbers64},
    {8, primitive::kF32, Kept::kReals32},
    {9, primitive::kF64, Kept::kReals64},
    {11, 10, Kept::kBytes},  // F16
    {12, primitive::kC64, Kept::kReals32},
    {13, 16, Kept::kBytes},  // BF16
    {15, 2, Kept::kBytes},   // S8
    {16, 7, Kept::kBytes},   // U16
    {17, 3, Kept::kBytes},   // S16
    {18, primitive::kC128, Kept::kReals64},
    {19, 19, Kept::kBytes},  // the others, of 8 bits and less: F8E5M2
    {20, 20, Kept::kBytes},
    {21, 21, Kept::kBytes},
    {22, 22, Kept::kBytes},
    {23, 23, Kept::kBytes},
    {24, 24, Kept::kBytes},
    {25, 25, Kept::kBytes},
    {26, 26, Kept::kBytes},
    {27, 27, Kept::kBytes},
    {28, 28, Kept::kBytes},
    {29, 29, Kept::kBytes},
    {30, 30, Kept::kBytes},
    {31, 31, Kept::kBytes},
    {32, 32, Kept::kBytes},
    {33, 33, Kept::kBytes},
    {35, 35, Kept::kBytes},
    {36, 36, Kept::kBytes},
});

void append(const Ints& numbers, size_t bytes_each, std::vector<std::byte>& to) {
  for (const int64_t n : numbers) {
    for (size_t i = 0; i < bytes_each; ++i) {
      to.push_back(static_cast<std::byte>(static_cast<uint64_t>(n) >> (8 * i)));
    }
  }
}

void take_elements(const Message& m, Kept kept, std::vector<std::byte>& to) {
  Ints numbers;
  switch (kept) {
    case Kept::kBytes: {
      const auto* data = reinterpret_cast<const std::byte*>(m.bytes().data());
      to.assign(data, data + m.bytes().size());  // of a field that is there twice the last is true
      break;
    }
    case Kept::kReals32:
      m.fixed(spec::kProtoFixed32, to);
      break;
    case Kept::kReals64:
      m.fixed(spec::kProtoFixed64, to);
      break;
    case Kept::kBools:
      m.integers(numbers);
      std::for_each(numbers.begin(), numbers.end(), [](int64_t& n) { n = n != 0 ? 1 : 0; });
      append(numbers, 1, to);
      break;
    case Kept::kNumbers32:
      m.integers(numbers);
      append(numbers, 4, to);
      break;
    case Kept::kNumbers64:
      m.integers(numbers);
      append(numbers, 8, to);
      break;
  }
}

void read_layout(Message m, Shape& shape) {
  while (m.next()) {
    if (m.field() == 1) {
      m.integers(shape.minor_to_major);
    } else if (m.field() == 8) {
      shape.memory_space = m.integer();
    }
  }
}

}  // namespace

Shape read_shape(Message m) {
  Shape shape;
  Ints dynamic;
  while (m.next()) {
    switch (m.field()) {
      case 2:
        shape.type = m.integer();
        break;
      case 3:
        m.integers(shape.dims);
        break;
      case 4:
        shape.members.push_back(read_shape(m.message("ShapeProto")));
        break;
      case 5:
        read_layout(m.message("LayoutProto"), shape);
        break;
      case 6:
        m.integers(dynamic);
        break;
      default:
        break;
    }
  }
  if (!dynamic.empty() && dynamic.size() != shape.dims.size()) {
    m.fail("is_dynamic_dimension has " + std::to_string(dynamic.size()) + " entries, expected " +
           std::to_string(shape.dims.size()) + ", one a dimension");
  }
  for (size_t d = 0; d < dynamic.size(); ++d) {
    shape.dims[d] = dynamic[d] != 0 ? kDynamic : shape.dims[d];
  }
  if (!shape.minor_to_major.empty() && !is_order(shape.minor_to_major, shape.dims.size())) {
    m.fail("the layout does not name each of the " + std::to_string(shape.dims.size()) +
           " dimensions once");
  }
  if (shape.is_tuple()) {
    shape.leaves = 0;
    for (const Shape& member : shape.members) {
      shape.leaves += member.leaves;
    }
    if (shape.leaves > kMostLeaves) {
      m.fail("a tuple of more than " + std::to_string(kMostLeaves) + " arrays");
    }
  } else if (!shape.members.empty() && shape.type != primitive::kBuffer) {
    m.fail("tuple_shapes of a shape that is not a tuple");
  }
  return shape;
}

Literal read_literal(Message m) {
  Literal literal;
  int64_t kept_type = 0;
  while (m.next()) {
    if (m.field() == 1) {
      literal.shape = read_shape(m.message("ShapeProto"));
      continue;
    }
    if (m.field() == 10) {
      literal.members.push_back(read_literal(m.message("LiteralProto")));
      continue;
    }
    const auto known = std::find_if(kLiteralFields.begin(), kLiteralFields.end(),
                                    [&](const LiteralField& f) { return f.field == m.field(); });
    if (known == kLiteralFields.end()) {
      continue;
    }
    if (known->kept == Kept::kBytes && kept_type == known->type) {
      literal.elements.clear();  // of a field that is there twice the last counts
    }
    const size_t before = literal.elements.size();
    take_elements(m, known->kept, literal.elements);
    if (literal.elements.size() == before) {
      continue;
    }
    if (kept_type != 0 && kept_type != known->type) {
      m.fail("elements of two types");
    }
    kept_type = known->type;
  }
  if (kept_type != 0 && kept_type != literal.shape.type) {
    m.fail("elements of type " + std::to_string(kept_type) + ", the shape says type " +
           std::to_string(literal.shape.type));
  }
  return literal;
}

}  // namespace tpu::compiler::hlo
