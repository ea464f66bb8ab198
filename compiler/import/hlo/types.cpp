// See types.hpp.
#include "import/hlo/types.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "import/codes.hpp"
#include "import/hlo/converter.hpp"

namespace tpu::compiler::hlo {
namespace {

namespace vt = bytecode::vhlo_type;
using bytecode::RawBuilder;

enum class Family : uint8_t { kSigned, kUnsigned, kFloat, kComplex };
struct ElementType {
  int64_t primitive;
  std::string_view name;
  uint32_t vhlo;  // of complex ones the code of a part
  int64_t bytes;
  Family family;
};

// xla_data.proto, PrimitiveType.
constexpr std::array kTypes = std::to_array<ElementType>({
    {1, "pred", vt::kI1, 1, Family::kUnsigned},
    {2, "s8", vt::kI8, 1, Family::kSigned},
    {3, "s16", vt::kI16, 2, Family::kSigned},
    {4, "s32", vt::kI32, 4, Family::kSigned},
    {5, "s64", vt::kI64, 8, Family::kSigned},
    {6, "u8", vt::kU8, 1, Family::kUnsigned},
    {7, "u16", vt::kU16, 2, Family::kUnsigned},
    {8, "u32", vt::kU32, 4, Family::kUnsigned},
    {9, "u64", vt::kU64, 8, Family::kUnsigned},
    {10, "f16", vt::kF16, 2, Family::kFloat},
    {11, "f32", vt::kF32, 4, Family::kFloat},
    {12, "f64", vt::kF64, 8, Family::kFloat},
    {15, "c64", vt::kF32, 8, Family::kComplex},
    {16, "bf16", vt::kBf16, 2, Family::kFloat},
    {18, "c128", vt::kF64, 16, Family::kComplex},
    {19, "f8e5m2", vt::kF8E5M2, 1, Family::kFloat},
    {20, "f8e4m3fn", vt::kF8E4M3FN, 1, Family::kFloat},
    {21, "s4", vt::kI4, 1, Family::kSigned},
    {22, "u4", vt::kU4, 1, Family::kUnsigned},
    {23, "f8e4m3b11fnuz", vt::kF8E4M3B11, 1, Family::kFloat},
    {24, "f8e5m2fnuz", vt::kF8E5M2FNUZ, 1, Family::kFloat},
    {25, "f8e4m3fnuz", vt::kF8E4M3FNUZ, 1, Family::kFloat},
    {26, "s2", vt::kI2, 1, Family::kSigned},
    {27, "u2", vt::kU2, 1, Family::kUnsigned},
    {28, "f8e4m3", vt::kF8E4M3, 1, Family::kFloat},
    {29, "f8e3m4", vt::kF8E3M4, 1, Family::kFloat},
    {30, "s1", vt::kI2, 1, Family::kSigned},
    {31, "u1", vt::kU2, 1, Family::kUnsigned},
    {32, "f4e2m1fn", vt::kF4E2M1, 1, Family::kFloat},
    {33, "f8e8m0fnu", vt::kF8E8M0, 1, Family::kFloat},
    {35, "f6e3m2fn", vt::kF6E3M2, 1, Family::kFloat},
    {36, "f6e2m3fn", vt::kF6E2M3, 1, Family::kFloat},
});

const ElementType* find(int64_t primitive) {
  const auto* at = std::find_if(kTypes.begin(), kTypes.end(),
                                [&](const ElementType& t) { return t.primitive == primitive; });
  return at == kTypes.end() ? nullptr : at;
}

void append_text(const Shape& shape, std::string& to) {
  constexpr size_t kMost = 2000;
  if (to.size() > kMost) {
    return;
  }
  if (shape.is_tuple()) {
    to += "(";
    for (size_t i = 0; i < shape.members.size(); ++i) {
      to += i == 0 ? "" : ", ";
      append_text(shape.members[i], to);
    }
    to += ")";
    return;
  }
  to += type_name(shape.type) + "[";
  for (size_t d = 0; d < shape.dims.size(); ++d) {
    to += (d == 0 ? "" : ",") +
          (shape.dims[d] == kDynamic ? std::string("?") : std::to_string(shape.dims[d]));
  }
  to += "]";
}

}  // namespace

uint32_t vhlo_type_of(const Shape& leaf, RawBuilder& build) {
  if (leaf.is_token()) {
    return build.plain_type(vt::kToken);
  }
  const ElementType* type = find(leaf.type);
  if (type == nullptr) {
    return build.plain_type(vt::kNone);  // opaque and others: no array
  }
  const uint32_t part = build.plain_type(type->vhlo);
  return build.tensor_type(type->family == Family::kComplex ? build.complex_type(part) : part,
                           leaf.dims);
}

int64_t literal_bytes(int64_t primitive) {
  const ElementType* type = find(primitive);
  return type == nullptr ? 0 : type->bytes;
}

bool is_floating(int64_t primitive) {
  const ElementType* type = find(primitive);
  return type != nullptr && (type->family == Family::kFloat || type->family == Family::kComplex);
}

bool is_unsigned(int64_t primitive) {
  const ElementType* type = find(primitive);
  return type != nullptr && type->family == Family::kUnsigned;
}

std::string type_name(int64_t primitive) {
  const ElementType* type = find(primitive);
  switch (primitive) {
    case hlo::primitive::kToken:
      return "token";
    case hlo::primitive::kOpaque:
      return "opaque";
    case hlo::primitive::kBuffer:
      return "buffer";
    default:
      return type == nullptr ? "type " + std::to_string(primitive) : std::string(type->name);
  }
}

std::string to_string(const Shape& shape) {
  std::string text;
  append_text(shape, text);
  return text;
}

}  // namespace tpu::compiler::hlo
