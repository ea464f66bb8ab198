// Typed access to raw attributes, types and locations of one op. All failures name the op and its
// source line. Private to the import.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "import/bytecode.hpp"
#include "ir/error_kinds.hpp"
#include "ir/type.hpp"

namespace tpu::compiler::frontend {

// "add_v1" -> "add"; names without version stay.
std::string base_name(std::string_view name);

// As errors show it: "stablehlo.add", "sdy.mesh".
std::string display_name(const bytecode::RawOp& op);

// Element types whose attribute the graph does not need are never looked at, so odd ones do no harm
// there.
class Tables {
 public:
  explicit Tables(const bytecode::RawModule& raw) : raw_(raw), locs_(raw.attrs.size()) {}

  const bytecode::RawModule& raw() const { return raw_; }
  const bytecode::RawAttr& attr(uint32_t index) const { return raw_.attrs[index]; }

  // Location attribute as path and frames; kNone gives the unknown location.
  LocRef loc(uint32_t attr_index);

  // Value of a string attribute of either dialect; nothing if it is another attribute.
  std::optional<std::string_view> text(uint32_t attr_index) const;
  // Value of an integer, boolean or unit attribute.
  std::optional<int64_t> integer(uint32_t attr_index) const;
  // Elements of an array attribute of either dialect.
  std::optional<std::vector<uint32_t>> array(uint32_t attr_index) const;
  // Entry of a dictionary attribute, kNone if missing (or no dictionary).
  uint32_t entry(uint32_t dictionary, std::string_view key) const;
  // A property of an op that is a string; "" if it is missing or another attribute.
  std::string_view property_text(const bytecode::RawOp& op, std::string_view property) const;

 private:
  void collect_frames(uint32_t attr_index, const std::string& function, int depth, int& steps,
                      Loc& out) const;

  const bytecode::RawModule& raw_;
  std::vector<LocRef> locs_;  // by attribute; filled on demand
};

// Tokens give ops with effects their order. The graph keeps its ops in that order anyway, so that a
// token is a constant there, which goes away with its users.
inline const Type kTokenType{Elem::kI1, {}};

// One op under conversion.
class OpReader {
 public:
  OpReader(const Tables& tables, const bytecode::RawOp& op, std::string display_name, LocRef loc)
      : tables_(tables), op_(op), name_(std::move(display_name)), loc_(std::move(loc)) {}

  [[noreturn]] void fail(const std::string& message) const { throw Error(message, name_, loc_); }
  [[noreturn]] void contradict(const std::string& message) const {
    throw Contradiction(message, name_, loc_);
  }

  const Tables& tables() const { return tables_; }
  const bytecode::RawOp& raw() const { return op_; }
  const std::string& name() const { return name_; }
  const LocRef& loc() const { return loc_; }

  // Static tensor of a supported element type, or an error that says what to use instead.
  bool is_token(uint32_t type_index) const;
  Type type(uint32_t type_index) const;

  bool has(std::string_view property) const;
  uint32_t property(std::string_view property) const;  // attribute index; an error if missing
  int64_t integer(std::string_view property) const;
  bool boolean(std::string_view property) const { return integer(property) != 0; }
  std::string text(std::string_view property) const;
  // Code of an enumeration attribute, checked to be at most `max`.
  int64_t enumeration(std::string_view property, int64_t max) const;
  Dims dims(std::string_view property) const;  // 1-D integer tensor
  // Rows of a 2-D integer tensor.
  std::vector<Dims> matrix(std::string_view property) const;
  double number(std::string_view property) const;  // float attribute
  Dense dense(uint32_t attr_index) const;          // tensor attribute of a supported type

 private:
  Elem elem(uint32_t type_index) const;
  [[noreturn]] void refuse_shape(const bytecode::RawType& type, Elem elem) const;
  Dense integers(std::string_view property) const;
  void check_magnitude(int64_t value, std::string_view property) const;

  const Tables& tables_;
  const bytecode::RawOp& op_;
  std::string name_;
  LocRef loc_;
};

}  // namespace tpu::compiler::frontend
