// Attributes of Shardy, which XLA writes into an HLO module as text in MLIR's syntax, as the
// attributes that an artifact has (import/sharding.hpp). Private to the import.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "import/raw_builder.hpp"

namespace tpu::compiler::hlo {

// All throw Error without a place for what is not such a text.
class ShardyTexts {
 public:
  explicit ShardyTexts(bytecode::RawBuilder& build) : build_(build) {}

  // {mesh = #sdy.mesh<["a"=2, "b"=4]>, ..}: names and meshes.
  std::vector<std::pair<std::string_view, uint32_t>> meshes(std::string_view text);
  // #sdy.sharding<@mesh, [{"a", ?}p1, {}], replicated={"b":(1)2}>
  uint32_t sharding(std::string_view text);
  // #sdy.sharding_per_value<[<@mesh, [{}]>, ..]>. `open`: all dimensions are left open.
  const std::vector<uint32_t>& per_value(std::string_view text, bool open = false);
  // #sdy<manual_axes{"a", "b"}>
  uint32_t manual_axes(std::string_view text);
  // 7 : i64
  static int64_t number(std::string_view text);

 private:
  class Parser;

  bytecode::RawBuilder& build_;
  std::map<std::string_view, uint32_t> names_;  // attributes of axes and meshes, by name
  std::map<std::pair<std::string_view, bool>, std::vector<uint32_t>> per_value_;  // those read
};

}  // namespace tpu::compiler::hlo
