// Typed access to the attributes and types of an op; Tables: attr_tables.cpp.
#include "import/attr_reader.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "import/codes.hpp"
#include "ir/error_kinds.hpp"

namespace tpu::compiler::frontend {
namespace {

using bytecode::Dialect;
using bytecode::kNone;
using bytecode::RawAttr;
using bytecode::RawType;
namespace ba = bytecode::builtin_attr;
namespace bt = bytecode::builtin_type;
namespace va = bytecode::vhlo_attr;
namespace vt = bytecode::vhlo_type;

// Bounds for sizes and attribute values, so that index arithmetic on them cannot overflow.
constexpr int64_t kMaxMagnitude = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxBytes = int64_t{1} << 32 << 10;

bool is(const RawAttr& a, Dialect d, uint32_t code) { return a.dialect == d && a.code == code; }

std::optional<Elem> vhlo_elem(uint32_t code) {
  switch (code) {
    case vt::kI1:
      return Elem::kI1;
    case vt::kBf16:
      return Elem::kBf16;
    case vt::kF16:
      return Elem::kF16;
    case vt::kF32:
      return Elem::kF32;
    case vt::kF64:
      return Elem::kF64;
    case vt::kIndex:
      return Elem::kIndex;
    case vt::kI2:
      return Elem::kI2;
    case vt::kI4:
      return Elem::kI4;
    case vt::kI8:
      return Elem::kI8;
    case vt::kI16:
      return Elem::kI16;
    case vt::kI32:
      return Elem::kI32;
    case vt::kI64:
      return Elem::kI64;
    case vt::kU2:
      return Elem::kU2;
    case vt::kU4:
      return Elem::kU4;
    case vt::kU8:
      return Elem::kU8;
    case vt::kU16:
      return Elem::kU16;
    case vt::kU32:
      return Elem::kU32;
    case vt::kU64:
      return Elem::kU64;
    case vt::kTf32:
      return Elem::kTf32;
    case vt::kF8E4M3FN:
    case vt::kF8E5M2:
    case vt::kF8E4M3FNUZ:
    case vt::kF8E5M2FNUZ:
    case vt::kF8E4M3B11:
    case vt::kF8E4M3:
    case vt::kF8E3M4:
    case vt::kF4E2M1:
    case vt::kF6E2M3:
    case vt::kF6E3M2:
    case vt::kF8E8M0:
      return Elem::kFloat8;
    default:
      return std::nullopt;
  }
}

std::optional<Elem> builtin_elem(const RawType& t) {
  const bool is_unsigned_int = t.signedness == 2;
  switch (t.code) {
    case bt::kBf16:
      return Elem::kBf16;
    case bt::kF16:
      return Elem::kF16;
    case bt::kF32:
      return Elem::kF32;
    case bt::kF64:
      return Elem::kF64;
    case bt::kIndex:
      return Elem::kIndex;
    case bt::kInteger:
      switch (t.width) {
        case 1:
          return Elem::kI1;
        case 8:
          return is_unsigned_int ? Elem::kU8 : Elem::kI8;
        case 16:
          return is_unsigned_int ? Elem::kU16 : Elem::kI16;
        case 32:
          return is_unsigned_int ? Elem::kU32 : Elem::kI32;
        case 64:
          return is_unsigned_int ? Elem::kU64 : Elem::kI64;
        default:
          return std::nullopt;
      }
    default:
      return std::nullopt;
  }
}

std::string advice(Elem e) {
  switch (e) {
    case Elem::kF16:
      return "; use bfloat16";
    case Elem::kFloat8:
    case Elem::kTf32:
      return "; use bfloat16 or float32";
    case Elem::kComplex128:
      return "; use complex64";
    default:
      return "; use a standard integer type";
  }
}

// i1 is packed, 8 to a byte, low bit first; very old writers stored a byte each.
std::optional<std::vector<std::byte>> unpack_i1(std::span<const std::byte> blob, int64_t count) {
  const auto n = static_cast<size_t>(count);
  std::vector<std::byte> out(n);
  const size_t packed = (n + 7) / 8;
  if (blob.size() == 1 && n > 8) {
    if (blob[0] != std::byte{0} && blob[0] != std::byte{0xff}) {
      return std::nullopt;
    }
    std::memset(out.data(), blob[0] == std::byte{0} ? 0 : 1, n);
  } else if (blob.size() == packed) {
    for (size_t i = 0; i < n; ++i) {
      out[i] = (blob[i / 8] >> static_cast<int>(i % 8)) & std::byte{1};
    }
  } else if (blob.size() == n) {
    for (size_t i = 0; i < n; ++i) {
      out[i] = blob[i] == std::byte{0} ? std::byte{0} : std::byte{1};
    }
  } else {
    return std::nullopt;
  }
  return out;
}

}  // namespace

Elem OpReader::elem(uint32_t type_index) const {
  const RawType& t = tables_.raw().types[type_index];
  if ((t.dialect == Dialect::kVhlo && t.code == vt::kComplex) ||
      (t.dialect == Dialect::kBuiltin && t.code == bt::kComplex)) {
    const RawType& part = tables_.raw().types[t.types[0]];
    const uint32_t f64 = part.dialect == Dialect::kVhlo ? vt::kF64 : bt::kF64;
    return part.code == f64 ? Elem::kComplex128 : Elem::kComplex64;
  }
  const auto e = t.dialect == Dialect::kVhlo      ? vhlo_elem(t.code)
                 : t.dialect == Dialect::kBuiltin ? builtin_elem(t)
                                                  : std::nullopt;
  if (!e) {
    fail("unknown element type (code " + std::to_string(t.code) + ")");
  }
  return *e;
}

bool OpReader::is_token(uint32_t type_index) const {
  const RawType& t = tables_.raw().types[type_index];
  return (t.dialect == Dialect::kVhlo && t.code == vt::kToken) ||
         (t.dialect == Dialect::kStablehlo && t.code == bytecode::stablehlo_type::kToken);
}

// Sizes beyond the bounds. What no board could hold is too large for memory, not unsupported.
void OpReader::refuse_shape(const RawType& t, Elem elem) const {
  const Type whole{elem, Dims(t.shape.begin(), t.shape.end())};
  double bytes = static_cast<double>(elem_bytes(elem));
  for (const int64_t d : t.shape) {
    bytes *= static_cast<double>(std::max<int64_t>(d, 0));
  }
  const std::string bounds =
      ": a dimension has at most 2^31 - 1 elements, and an array has at most 4 TiB; use more and "
      "shorter dimensions, or split the array";
  if (bytes > static_cast<double>(kMaxBytes)) {
    throw HbmExhausted("an array of type " + to_string(whole) + " is too large" + bounds, name_,
                       loc_);
  }
  fail("shape " + to_string(whole.dims) + " is not supported" + bounds);
}

Type OpReader::type(uint32_t type_index) const {
  const RawType& t = tables_.raw().types[type_index];
  const bool vhlo_tensor =
      t.dialect == Dialect::kVhlo && (t.code == vt::kTensor || t.code == vt::kTensorEncoding);
  const bool builtin_tensor =
      t.dialect == Dialect::kBuiltin && (t.code == bt::kTensor || t.code == bt::kTensorEncoding);
  if (!vhlo_tensor && !builtin_tensor) {
    if (is_token(type_index)) {
      return kTokenType;
    }
    if (t.dialect == Dialect::kVhlo && t.code == vt::kTuple) {
      fail("a tuple cannot be here; use its members");
    }
    fail("only tensors of static shape are supported");
  }
  Type out{elem(t.types[0]), {}};
  int64_t count = elem_bytes(out.elem);
  for (const int64_t d : t.shape) {
    if (d == std::numeric_limits<int64_t>::min()) {
      fail("dynamic shapes are not supported; export the program for fixed sizes");
    }
    if (d < 0 || d > kMaxMagnitude || d > kMaxBytes / count) {
      refuse_shape(t, out.elem);
    }
    count *= std::max<int64_t>(d, 1);
    out.dims.push_back(d);
  }
  if (!is_supported(out.elem)) {
    fail("element type " + std::string(elem_name(out.elem)) + " is not supported by the TPU" +
         advice(out.elem));
  }
  return out;
}

bool OpReader::has(std::string_view property_name) const {
  for (const auto& [key, value] : op_.properties) {
    if (key == property_name) {
      return true;
    }
  }
  return false;
}

uint32_t OpReader::property(std::string_view property_name) const {
  for (const auto& [key, value] : op_.properties) {
    if (key == property_name) {
      return value;
    }
  }
  fail("the property '" + std::string(property_name) + "' is missing");
}

int64_t OpReader::integer(std::string_view property_name) const {
  const auto v = tables_.integer(property(property_name));
  if (!v) {
    fail("the property '" + std::string(property_name) + "' must be an integer");
  }
  check_magnitude(*v, property_name);
  return *v;
}

std::string OpReader::text(std::string_view property_name) const {
  const auto v = tables_.text(property(property_name));
  if (!v) {
    fail("the property '" + std::string(property_name) + "' must be a string");
  }
  return std::string(*v);
}

int64_t OpReader::enumeration(std::string_view property_name, int64_t max) const {
  const RawAttr& a = tables_.attr(property(property_name));
  if (a.dialect != Dialect::kVhlo || a.ints.size() != 1 || a.ints[0] < 0 || a.ints[0] > max) {
    fail("the property '" + std::string(property_name) + "' has an unknown value");
  }
  return a.ints[0];
}

double OpReader::number(std::string_view property_name) const {
  const RawAttr& a = tables_.attr(property(property_name));
  const bool is_number = is(a, Dialect::kVhlo, va::kFloat) || is(a, Dialect::kBuiltin, ba::kFloat);
  if (is_number && a.type != kNone) {
    const RawType& t = tables_.raw().types[a.type];
    const auto e = t.dialect == Dialect::kVhlo ? vhlo_elem(t.code) : builtin_elem(t);
    if (e == Elem::kF32) {
      return std::bit_cast<float>(static_cast<uint32_t>(a.ints.at(0)));
    }
    if (e == Elem::kF64) {
      return std::bit_cast<double>(a.ints.at(0));
    }
  }
  fail("the property '" + std::string(property_name) + "' must be a float");
}

Dense OpReader::dense(uint32_t attr_index) const {
  const RawAttr& a = tables_.attr(attr_index);
  if ((!is(a, Dialect::kVhlo, va::kTensor) && !is(a, Dialect::kBuiltin, ba::kDense)) ||
      a.type == kNone) {
    fail("a tensor attribute was expected");
  }
  const Type t = type(a.type);
  if (t.count() == 0 && static_cast<int64_t>(a.blob.size()) <= elem_bytes(t.elem)) {
    return make_dense(t, {});  // written as no elements, or as the splat of one
  }
  if (t.elem == Elem::kI1) {
    if (t.count() > static_cast<int64_t>(a.blob.size()) * 8 && a.blob.size() == 1) {
      if (a.blob[0] == std::byte{0} || a.blob[0] == std::byte{0xff}) {
        return make_splat_int(t, a.blob[0] != std::byte{0});
      }
    }
    if (t.count() <= static_cast<int64_t>(a.blob.size()) * 8) {
      if (auto bytes = unpack_i1(a.blob, t.count())) {
        return make_dense(t, std::move(*bytes));
      }
    }
  } else {
    const auto size = static_cast<int64_t>(a.blob.size());
    std::vector<std::byte> bytes(a.blob.begin(), a.blob.end());
    if (size == t.bytes()) {
      return make_dense(t, std::move(bytes));
    }
    if (size == elem_bytes(t.elem) && t.count() > 1) {
      return {t, true, std::make_shared<const std::vector<std::byte>>(std::move(bytes))};
    }
  }
  fail("a constant of type " + to_string(t) + " has " + std::to_string(a.blob.size()) +
       " bytes of data");
}

Dense OpReader::integers(std::string_view property_name) const {
  const uint32_t i = property(property_name);
  const RawAttr& a = tables_.attr(i);
  // Attributes are small; a splat of absurd size in a damaged file must not be expanded.
  Dense d = dense(i);
  constexpr int64_t kMaxCount = 1 << 20;
  if (is_float(d.type.elem) || d.type.count() > kMaxCount || a.type == kNone) {
    fail("the property '" + std::string(property_name) + "' must be an integer tensor");
  }
  return d;
}

void OpReader::check_magnitude(int64_t value, std::string_view property_name) const {
  if (value > kMaxMagnitude || value < -kMaxMagnitude) {
    fail("the property '" + std::string(property_name) + "' has a value that is out of range");
  }
}

Dims OpReader::dims(std::string_view property_name) const {
  const Dense d = integers(property_name);
  if (d.type.rank() != 1) {
    fail("the property '" + std::string(property_name) + "' must have one dimension");
  }
  Dims out;
  for (int64_t i = 0; i < d.type.count(); ++i) {
    out.push_back(d.as_int(i));
    check_magnitude(out.back(), property_name);
  }
  return out;
}

std::vector<Dims> OpReader::matrix(std::string_view property_name) const {
  const Dense d = integers(property_name);
  if (d.type.rank() != 2) {
    fail("the property '" + std::string(property_name) + "' must have two dimensions");
  }
  std::vector<Dims> rows;
  constexpr int64_t kMaxRows =
      1 << 20;  // rows may be empty, so the element count does not bound them
  if (d.type.dims[0] > kMaxRows) {
    fail("the property '" + std::string(property_name) + "' has too many rows");
  }
  for (int64_t r = 0; r < d.type.dims[0]; ++r) {
    Dims row;
    for (int64_t c = 0; c < d.type.dims[1]; ++c) {
      row.push_back(d.as_int(r * d.type.dims[1] + c));
      check_magnitude(row.back(), property_name);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace tpu::compiler::frontend
