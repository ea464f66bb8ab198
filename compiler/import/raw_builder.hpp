// Adds attributes and types to the tables of a RawModule, for readers of other forms than VHLO.
// Private to the import.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "import/bytecode.hpp"

namespace tpu::compiler::bytecode {

class RawBuilder {
 public:
  using Ints = std::vector<int64_t>;

  explicit RawBuilder(RawModule& module) : m_(module) {}

  // Each gives the number of the attribute.
  uint32_t add(RawAttr attr);
  uint32_t integer(int64_t value);
  uint32_t real(float value);
  uint32_t tensor(const Ints& values, Ints shape);  // of i64
  uint32_t list(const Ints& values);                // the same with one dimension
  // Elements as they lie in memory; `type` is a tensor type.
  uint32_t constant(std::vector<std::byte> elements, uint32_t type);
  uint32_t enumeration(uint32_t code, int64_t value);
  uint32_t text(std::string_view text);  // it must outlive the module
  uint32_t kept_text(std::string text);
  uint32_t array(std::vector<uint32_t> attrs);
  uint32_t dictionary(const std::vector<std::pair<std::string_view, uint32_t>>& entries);
  uint32_t of_type(uint32_t type);
  std::string_view keep(std::string text);

  // Each gives the number of the type. Codes are those of vhlo_type.
  uint32_t plain_type(uint32_t code);
  uint32_t complex_type(uint32_t part);
  uint32_t tensor_type(uint32_t elem, Ints shape);
  uint32_t function_type(const std::vector<uint32_t>& inputs, const std::vector<uint32_t>& outputs);

 private:
  uint32_t add(RawType type);

  RawModule& m_;
  std::map<uint32_t, uint32_t> plain_types_, complex_types_;
  std::map<std::pair<uint32_t, Ints>, uint32_t> tensor_types_;
};

}  // namespace tpu::compiler::bytecode
