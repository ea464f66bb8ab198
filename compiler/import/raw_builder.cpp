// See raw_builder.hpp.
#include "import/raw_builder.hpp"

#include <bit>
#include <cstring>

#include "import/codes.hpp"

namespace tpu::compiler::bytecode {
namespace {

RawAttr vhlo(uint32_t code) {
  RawAttr a;
  a.dialect = Dialect::kVhlo;
  a.code = code;
  return a;
}

}  // namespace

uint32_t RawBuilder::add(RawAttr attr) {
  m_.attrs.push_back(std::move(attr));
  return static_cast<uint32_t>(m_.attrs.size() - 1);
}

uint32_t RawBuilder::add(RawType type) {
  m_.types.push_back(std::move(type));
  return static_cast<uint32_t>(m_.types.size() - 1);
}

uint32_t RawBuilder::integer(int64_t value) {
  RawAttr a = vhlo(vhlo_attr::kInteger);
  a.ints = {value};
  return add(std::move(a));
}

uint32_t RawBuilder::real(float value) {
  RawAttr a = vhlo(vhlo_attr::kFloat);
  a.ints = {static_cast<int64_t>(std::bit_cast<uint32_t>(value))};
  a.type = plain_type(vhlo_type::kF32);
  return add(std::move(a));
}

uint32_t RawBuilder::tensor(const Ints& values, Ints shape) {
  std::vector<std::byte> bytes(values.size() * sizeof(int64_t));
  if (!values.empty()) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  return constant(std::move(bytes), tensor_type(plain_type(vhlo_type::kI64), std::move(shape)));
}

uint32_t RawBuilder::list(const Ints& values) { return tensor(values, {std::ssize(values)}); }

uint32_t RawBuilder::constant(std::vector<std::byte> elements, uint32_t type) {
  RawAttr a = vhlo(vhlo_attr::kTensor);
  a.blob = m_.blobs.emplace_back(std::move(elements));
  a.type = type;
  return add(std::move(a));
}

uint32_t RawBuilder::enumeration(uint32_t code, int64_t value) {
  RawAttr a = vhlo(code);
  a.ints = {value};
  return add(std::move(a));
}

uint32_t RawBuilder::text(std::string_view text) {
  RawAttr a = vhlo(vhlo_attr::kString);
  a.text = text;
  return add(std::move(a));
}

uint32_t RawBuilder::kept_text(std::string text) { return this->text(keep(std::move(text))); }

std::string_view RawBuilder::keep(std::string text) {
  return m_.texts.emplace_back(std::move(text));
}

uint32_t RawBuilder::array(std::vector<uint32_t> attrs) {
  RawAttr a = vhlo(vhlo_attr::kArray);
  a.attrs = std::move(attrs);
  return add(std::move(a));
}

uint32_t RawBuilder::dictionary(const std::vector<std::pair<std::string_view, uint32_t>>& entries) {
  RawAttr a = vhlo(vhlo_attr::kDictionary);
  for (const auto& [name, value] : entries) {
    a.pairs.emplace_back(text(name), value);
  }
  return add(std::move(a));
}

uint32_t RawBuilder::of_type(uint32_t type) {
  RawAttr a = vhlo(vhlo_attr::kType);
  a.type = type;
  return add(std::move(a));
}

uint32_t RawBuilder::plain_type(uint32_t code) {
  const auto [at, added] = plain_types_.emplace(code, 0);
  if (added) {
    RawType t;
    t.dialect = Dialect::kVhlo;
    t.code = code;
    at->second = add(std::move(t));
  }
  return at->second;
}

uint32_t RawBuilder::complex_type(uint32_t part) {
  const auto [at, added] = complex_types_.emplace(part, 0);
  if (added) {
    RawType t;
    t.dialect = Dialect::kVhlo;
    t.code = vhlo_type::kComplex;
    t.types = {part};
    at->second = add(std::move(t));
  }
  return at->second;
}

uint32_t RawBuilder::tensor_type(uint32_t elem, Ints shape) {
  const auto [at, added] = tensor_types_.emplace(std::pair(elem, shape), 0);
  if (added) {
    RawType t;
    t.dialect = Dialect::kBuiltin;
    t.code = builtin_type::kTensor;
    t.shape = std::move(shape);
    t.types = {elem};
    at->second = add(std::move(t));
  }
  return at->second;
}

uint32_t RawBuilder::function_type(const std::vector<uint32_t>& inputs,
                                   const std::vector<uint32_t>& outputs) {
  RawType t;
  t.dialect = Dialect::kVhlo;
  t.code = vhlo_type::kFunction;
  t.types = inputs;
  t.types.insert(t.types.end(), outputs.begin(), outputs.end());
  t.num_inputs = inputs.size();
  return add(std::move(t));
}

}  // namespace tpu::compiler::bytecode
