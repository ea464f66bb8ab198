#include "processes/wire/frame_check.hpp"

#include <cstdint>
#include <string>

namespace tpu::pjrt {
namespace {

template <class Number>
bool aligned(const flatbuffers::Vector<Number>* numbers) {
  return numbers == nullptr || reinterpret_cast<uintptr_t>(numbers->Data()) % sizeof(Number) == 0;
}

template <class Table>
bool has_aligned_dims(const Table* table) {
  return aligned(table->dims());
}

size_t bytes_of(const flatbuffers::Vector<uint64_t>* numbers) {
  return numbers == nullptr ? 0 : numbers->size() * sizeof(uint64_t);
}

bool are_aligned(const flatbuffers::Vector<flatbuffers::Offset<wire::Share>>* shares) {
  if (shares == nullptr) {
    return true;
  }
  for (const wire::Share* share : *shares) {
    if (!aligned(share->arguments()) || !aligned(share->outputs())) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool is_aligned(const wire::Frame& frame) {
  switch (frame.body_type()) {
    case wire::Body::Put:
      return has_aligned_dims(frame.body_as_Put());
    case wire::Body::PutLater:
      return has_aligned_dims(frame.body_as_PutLater());
    case wire::Body::Zeros:
      return has_aligned_dims(frame.body_as_Zeros());
    case wire::Body::HostCall:
      return has_aligned_dims(frame.body_as_HostCall());
    case wire::Body::Load:
      return aligned(frame.body_as_Load()->devices());
    case wire::Body::Refuse:
      return aligned(frame.body_as_Refuse()->devices()) &&
             aligned(frame.body_as_Refuse()->members());
    case wire::Body::Leave:
      return aligned(frame.body_as_Leave()->devices());
    case wire::Body::Launch:
      return aligned(frame.body_as_Launch()->keep()) &&
             are_aligned(frame.body_as_Launch()->shares());
    case wire::Body::Answer:
      return aligned(frame.body_as_Answer()->numbers());
    default:
      return true;
  }
}

size_t listed_bytes(const wire::Frame& frame) {
  size_t bytes = 0;
  if (const wire::Hello* hello = frame.body_as_Hello(); hello && hello->options()) {
    for (const flatbuffers::String* option : *hello->options()) {
      bytes += sizeof(std::string) + option->size();
    }
  }
  if (const wire::Launch* launch = frame.body_as_Launch(); launch && launch->shares()) {
    for (const wire::Share* share : *launch->shares()) {
      bytes += sizeof(wire::ShareT) + bytes_of(share->arguments()) + bytes_of(share->outputs());
    }
  }
  return bytes;
}

}  // namespace tpu::pjrt
