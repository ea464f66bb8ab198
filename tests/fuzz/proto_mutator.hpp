// Damages protocol buffers so that they stay protocol buffers: a field at any depth gets another
// value or another number, is left out, comes twice, or gives its contents to another. The same
// seed gives the same inputs.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/proto_reader.hpp"
#include "format/proto_writer.hpp"

namespace tpu::test {

class ProtoMutator {
 public:
  explicit ProtoMutator(uint32_t seed) : random_(seed) {}

  std::string mutate(const std::string& message) {
    std::string out = message;
    for (size_t changes = 1 + below(3); changes > 0; --changes) {
      out = damaged(out);
    }
    return out;
  }

 private:
  using Fields = std::vector<spec::ProtoField>;

  // Nothing: the bytes are no message.
  static std::optional<Fields> fields_of(std::string_view bytes) {
    try {
      Fields fields;
      for (spec::ProtoReader reader(bytes); auto field = reader.next();) {
        fields.push_back(*field);
      }
      return fields;
    } catch (const spec::ProtoError&) {
      return std::nullopt;
    }
  }

  static void write(const spec::ProtoField& field, spec::ProtoWriter& to) {
    switch (field.wire) {
      case spec::kProtoVarint:
        to.number(field.number, field.value);
        break;
      case spec::kProtoBytes:
        to.text(field.number, field.bytes);
        break;
      case spec::kProtoFixed64:
        to.fixed64(field.number, field.value);
        break;
      default:  // 32 bits: as bytes, which are its packed form
        std::string four;
        for (int shift = 0; shift < 32; shift += 8) {
          four.push_back(static_cast<char>(field.value >> shift));
        }
        to.text(field.number, four);
    }
  }

  std::string damaged(std::string_view message) {
    std::optional<Fields> fields = fields_of(message);
    if (!fields || fields->empty()) {
      return std::string(message);
    }
    const size_t at = below(fields->size());
    spec::ProtoField& field = (*fields)[at];
    std::string kept;  // what the field shows of
    const auto inner = field.wire == spec::kProtoBytes ? fields_of(field.bytes) : std::nullopt;
    if (inner && !inner->empty() && below(8) != 0) {
      kept = damaged(field.bytes);
      field.bytes = kept;
    } else {
      change(field, *fields, at, kept);
    }
    spec::ProtoWriter out;
    for (const spec::ProtoField& each : *fields) {
      write(each, out);
    }
    return out.take();
  }

  void change(spec::ProtoField& field, Fields& fields, size_t at, std::string& kept) {
    const spec::ProtoField other = fields[below(fields.size())];
    switch (below(6)) {
      case 0:
        fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 1:
        fields.insert(fields.begin() + static_cast<std::ptrdiff_t>(at), other);
        break;
      case 2:
        field.number = static_cast<uint32_t>(1 + below(100));
        break;
      case 3:
        field = {field.number, other.wire, other.value, other.bytes};
        break;
      default:
        if (field.wire == spec::kProtoBytes) {
          kept = field.bytes;
          kept.insert(below(kept.size() + 1), 1, static_cast<char>(below(256)));
          field.bytes = kept;
        } else {
          field.value = number(field.value);
        }
    }
  }

  uint64_t number(uint64_t was) {
    switch (below(5)) {
      case 0:
        return was + 1;
      case 1:
        return was - 1;
      case 2:
        return below(64);
      case 3:
        return uint64_t{1} << below(64);
      default:
        return ~uint64_t{0} << below(64);
    }
  }

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  std::mt19937 random_;
};

}  // namespace tpu::test
