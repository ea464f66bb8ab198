// What a StableHLO portable artifact (VHLO in MLIR bytecode) or StableHLO's own bytecode holds, as
// plain tables and an op tree. The reader guarantees well-formed structure only: every index is in
// range, every operand is defined before. Versions, defaults and types: normalise.hpp. Views point
// into the artifact's bytes, which must outlive the RawModule, or into what it has made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tpu::compiler::bytecode {

enum class Dialect : uint8_t { kBuiltin, kVhlo, kSdy, kStablehlo, kFunc, kChlo, kHlo, kOther };

constexpr uint32_t kNone = 0xffffffff;

// Regions in each other; 0 is the module's own. Walks over regions recurse, here and behind.
constexpr int kMaxRegionDepth = 64;

// One attribute. Which fields are filled depends on (dialect, code); the codes are in codes.hpp.
struct RawAttr {
  Dialect dialect = Dialect::kOther;
  uint32_t code = kNone;        // kNone: a code which this reader does not know
  std::vector<uint32_t> attrs;  // referenced attributes, in order
  std::vector<std::pair<uint32_t, uint32_t>> pairs;  // dictionary: name (string attribute), value
  std::vector<int64_t> ints;  // integers in order; enums and booleans are one integer
  std::string_view text;
  std::span<const std::byte> blob;
  uint32_t type = kNone;
};

struct RawType {
  Dialect dialect = Dialect::kOther;
  uint32_t code = kNone;
  std::vector<int64_t> shape;
  std::vector<uint32_t> types;  // element type, tuple members, function inputs then results
  size_t num_inputs = 0;        // function type: how many of `types` are inputs
  uint32_t width = 0;           // builtin integer: bits
  uint32_t signedness = 0;      // builtin integer: 0 signless, 1 signed, 2 unsigned
};

struct RawOp;
struct RawArg {
  uint32_t value = 0;
  uint32_t type = 0;
  uint32_t loc = kNone;
};
struct RawRegion {  // one block, or none
  std::vector<RawArg> args;
  std::vector<RawOp> ops;
};
struct RawOp {
  Dialect dialect = Dialect::kOther;
  std::string_view dialect_name;
  std::string_view name;        // without the dialect, with version: "add_v1"
  uint32_t loc = kNone;         // attribute index
  uint32_t dictionary = kNone;  // discardable attributes: a dictionary attribute
  std::vector<std::pair<std::string_view, uint32_t>> properties;  // name, attribute
  std::vector<uint32_t> operands;      // value numbers, unique in the module
  std::vector<uint32_t> results;       // value numbers
  std::vector<uint32_t> result_types;  // type indices
  std::vector<RawRegion> regions;
};

struct RawModule {
  std::string producer;  // "StableHLO_v1.15.0", or "MLIR.." of other bytecode
  std::vector<std::string_view> strings;
  std::vector<RawType> types;
  std::vector<RawAttr> attrs;
  RawOp module;  // builtin.module
  uint32_t num_values = 0;

  // What passes over these tables have made: see plain_form.hpp.
  std::vector<std::vector<std::byte>> blobs;
  std::deque<std::string> texts;
};

// Throws compiler::Error for anything that is not a readable artifact.
RawModule read_bytecode(std::span<const std::byte> artifact);

// The property names of an op in bytecode order; null if the op is not known.
const std::vector<std::string_view>* op_properties(Dialect dialect, std::string_view name);

}  // namespace tpu::compiler::bytecode
