// Serialized HloModuleProtos by hand, for tests of their reader. Field numbers are those of
// xla/service/hlo.proto and xla/xla_data.proto, written here once more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/proto_writer.hpp"

namespace tpu::compiler::hlo_bytes {

using Ints = std::vector<int64_t>;

constexpr int64_t kPred = 1, kS8 = 2, kS32 = 4, kS64 = 5, kU8 = 6, kU32 = 8, kU64 = 9, kF16 = 10,
                  kF32 = 11, kF64 = 12, kTuple = 13, kC64 = 15, kBf16 = 16, kToken = 17;

// Fields that are joined with +.
inline std::string number(uint32_t field, int64_t value) {
  spec::ProtoWriter w;
  w.number(field, static_cast<uint64_t>(value));
  return w.take();
}
inline std::string bytes(uint32_t field, std::string_view value) {
  spec::ProtoWriter w;
  w.text(field, value);
  return w.take();
}
inline std::string packed(uint32_t field, const Ints& values) {
  std::string all;
  for (const int64_t v : values) {
    all += number(1, v).substr(1);  // without the tag
  }
  return bytes(field, all);
}

inline std::string shape(int64_t type, const Ints& dims, const Ints& minor_to_major = {}) {
  return number(2, type) + packed(3, dims) +
         (minor_to_major.empty() ? "" : bytes(5, packed(1, minor_to_major)));
}
inline std::string tuple_shape(const std::vector<std::string>& members) {
  std::string all = number(2, kTuple);
  for (const std::string& member : members) {
    all += bytes(4, member);
  }
  return all;
}

// Instructions of a computation have the numbers 1, 2, ..: operands are named by them.
struct Instruction {
  std::string opcode;
  std::string shape;
  Ints operands = {};
  std::string fields = {};  // others
  std::string name = {};    // empty: "OPCODE.NUMBER"
};
inline Instruction parameter(int64_t n, const std::string& shape) {
  return {"parameter", shape, {}, number(9, n)};
}

inline std::string instruction(const Instruction& i, int64_t id) {
  const std::string name = i.name.empty() ? i.opcode + "." + std::to_string(id) : i.name;
  return bytes(1, name) + bytes(2, i.opcode) + bytes(3, i.shape) + number(35, id) +
         (i.operands.empty() ? "" : packed(36, i.operands)) + i.fields;
}

// The root is the last instruction unless `root` says another.
inline std::string computation(const std::string& name, int64_t id,
                               const std::vector<Instruction>& instructions, int64_t root = 0) {
  std::string all = bytes(1, name);
  int64_t next = 0;
  for (const Instruction& i : instructions) {
    all += bytes(2, instruction(i, ++next));
  }
  return all + number(5, id) + number(6, root == 0 ? next : root);
}

// Calls computation `id`.
inline std::string calls(const Ints& ids) { return packed(38, ids); }

// The entry is the last computation, whose id must be their number.
inline std::string module(const std::vector<std::string>& computations,
                          const std::string& fields = {}) {
  std::string all = bytes(1, "test") + bytes(2, "main");
  for (const std::string& c : computations) {
    all += bytes(3, c);
  }
  return all + number(6, static_cast<int64_t>(computations.size())) + fields;
}

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace tpu::compiler::hlo_bytes
