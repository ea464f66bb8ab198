// Strict reading of one message of a serialized HloModuleProto: a known field must have the wire
// type of its declaration, and messages lie in each other no deeper than a bound. Fields that the
// caller does not ask for are passed over. Errors name the message and the field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/proto_reader.hpp"

namespace tpu::compiler::hlo {

class Message {
 public:
  // `name` as the messages of XLA are called; a literal.
  Message(std::string_view bytes, const char* name) : Message(bytes, name, 0) {}

  // The next field; false at the end.
  bool next();
  uint32_t field() const { return field_.number; }

  bool is_number() const { return field_.wire == spec::kProtoVarint; }
  int64_t integer() const;
  bool flag() const { return integer() != 0; }
  float real() const;
  std::string_view bytes() const;
  Message message(const char* name) const { return {bytes(), name, depth_ + 1}; }
  // Of a repeated field, packed or one by one: added to `to`.
  void integers(std::vector<int64_t>& to) const;
  // The same of numbers of a fixed size, whose bytes are appended.
  void fixed(uint32_t wire, std::vector<std::byte>& to) const;

  [[noreturn]] void fail(const std::string& why) const;

 private:
  Message(std::string_view bytes, const char* name, int depth);
  [[noreturn]] void fail_wire(const char* wanted) const;

  spec::ProtoReader reader_;
  const char* name_;
  int depth_;
  spec::ProtoField field_;
};

}  // namespace tpu::compiler::hlo
