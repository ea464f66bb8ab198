// See message.hpp.
#include "import/hlo/message.hpp"

#include <bit>

#include "ir/error.hpp"

namespace tpu::compiler::hlo {
namespace {

constexpr int kMostDepth = 64;

}  // namespace

Message::Message(std::string_view bytes, const char* name, int depth)
    : reader_(bytes), name_(name), depth_(depth) {
  if (depth > kMostDepth) {
    fail("messages lie more than " + std::to_string(kMostDepth) + " deep in each other");
  }
}

void Message::fail(const std::string& why) const {
  throw Error("the HLO module is damaged: " + std::string(name_) + ": " + why);
}

void Message::fail_wire(const char* wanted) const {
  fail("field " + std::to_string(field_.number) + " has the wire type " +
       std::to_string(field_.wire) + ", expected " + wanted);
}

bool Message::next() {
  try {
    const auto found = reader_.next();
    field_ = found.value_or(spec::ProtoField{});
    return found.has_value();
  } catch (const spec::ProtoError& error) {
    fail(error.what());
  }
}

int64_t Message::integer() const {
  if (field_.wire != spec::kProtoVarint) {
    fail_wire("0 (a number)");
  }
  return static_cast<int64_t>(field_.value);
}

float Message::real() const {
  if (field_.wire != spec::kProtoFixed32) {
    fail_wire("5 (32 bits)");
  }
  return std::bit_cast<float>(static_cast<uint32_t>(field_.value));
}

std::string_view Message::bytes() const {
  if (field_.wire != spec::kProtoBytes) {
    fail_wire("2 (bytes)");
  }
  return field_.bytes;
}

void Message::integers(std::vector<int64_t>& to) const {
  if (field_.wire == spec::kProtoVarint) {
    to.push_back(static_cast<int64_t>(field_.value));
    return;
  }
  try {
    for (spec::ProtoReader packed(bytes()); !packed.done();) {
      to.push_back(static_cast<int64_t>(packed.varint()));
    }
  } catch (const spec::ProtoError& error) {
    fail("field " + std::to_string(field_.number) + ": " + error.what());
  }
}

void Message::fixed(uint32_t wire, std::vector<std::byte>& to) const {
  const size_t size = wire == spec::kProtoFixed32 ? 4 : 8;
  if (field_.wire == wire) {
    for (size_t i = 0; i < size; ++i) {
      to.push_back(static_cast<std::byte>(field_.value >> (8 * i)));
    }
    return;
  }
  if (field_.wire != spec::kProtoBytes || field_.bytes.size() % size != 0) {
    fail_wire(size == 4 ? "5 (32 bits), or 2 with a multiple of 4 bytes"
                        : "1 (64 bits), or 2 with a multiple of 8 bytes");
  }
  const auto* data = reinterpret_cast<const std::byte*>(field_.bytes.data());
  to.insert(to.end(), data, data + field_.bytes.size());
}

}  // namespace tpu::compiler::hlo
