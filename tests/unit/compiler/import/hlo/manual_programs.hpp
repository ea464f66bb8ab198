// HLO modules with manual parts, on eight devices, for tests. The array of all devices is 8 x 8.
#pragma once

#include <string>
#include <vector>

#include "hlo_bytes.hpp"
#include "import/import.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler::hlo_bytes {

inline const std::string kWhole = shape(kF32, {8, 8});
inline const std::string kPart = shape(kF32, {8, 1});
inline const std::string kScalar = shape(kF32, {});

// Shardings, as OpSharding.
inline std::string tiles(const Ints& dims) {
  return number(1, 3) + packed(3, dims) + packed(9, {8}) + packed(10, {0});
}
inline const std::string kColumns = tiles({1, 8}), kRows = tiles({8, 1});
inline const std::string kManual = number(1, 4), kReplicated = number(1, 0);

inline Instruction sharded(Instruction i, const std::string& sharding) {
  i.fields += bytes(40, sharding);
  return i;
}
inline Instruction call_of(const std::string& target, const std::string& shape, int64_t operand,
                           const std::string& sharding) {
  return {"custom-call", shape, {operand}, bytes(28, target) + bytes(40, sharding)};
}
inline Instruction enter(int64_t operand, const std::string& shape = kPart) {
  return call_of("SPMDFullToShardShape", shape, operand, kManual);
}
inline Instruction leave(int64_t operand, const std::string& sharding = kColumns) {
  return call_of("SPMDShardToFullShape", kWhole, operand, sharding);
}
inline Instruction result_of(const std::vector<int64_t>& members) {
  return {"tuple", tuple_shape(std::vector<std::string>(members.size(), kWhole)), members};
}

inline const Instruction kColumnsOfWhole = sharded(parameter(0, kWhole), kColumns);

// Of computation 1, which adds.
inline std::string sum() {
  return computation("sum", 1,
                     {parameter(0, kScalar), parameter(1, kScalar), {"add", kScalar, {1, 2}}});
}
// A collective of all devices in computation 1.
inline const std::string kOverAll =
    calls({1}) + number(26, 1) + number(71, 1) + bytes(49, packed(1, {0, 1, 2, 3, 4, 5, 6, 7}));

inline std::string floats(const std::string& shape, const std::vector<float>& values) {
  const std::string raw(reinterpret_cast<const char*>(values.data()),
                        values.size() * sizeof(float));
  return bytes(8, bytes(1, shape) + bytes(8, raw));
}
inline const std::string kOnes = floats(kPart, std::vector<float>(8, 1));

inline const std::string kFirstColumn = bytes(17, number(1, 0) + number(2, 8) + number(3, 1)) +
                                        bytes(17, number(1, 0) + number(2, 1) + number(3, 1));

inline const std::string kFirstElement = bytes(17, number(1, 0) + number(2, 1) + number(3, 1)) +
                                         bytes(17, number(1, 0) + number(2, 1) + number(3, 1));

inline std::string program(const std::vector<Instruction>& instructions,
                           const std::vector<std::string>& others = {}) {
  std::vector<std::string> all = others;
  all.push_back(computation("main", std::ssize(all) + 1, instructions));
  return module(all);
}

inline Module load(const std::string& bytes) {
  return import_program(as_bytes(bytes), "", {.partitions = 8});
}

}  // namespace tpu::compiler::hlo_bytes
