// Requests of a client, as the parts of a function read them.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "transport/vfio/frame_socket.hpp"

namespace tpu::driver::vfio {

/// An error reply, and what its line says.
class Rejected : public std::runtime_error {
 public:
  Rejected(int error, const std::string& text) : std::runtime_error(text), error_(error) {}
  int error() const { return error_; }

 private:
  int error_;
};

/// The structure at the beginning of a payload that may be longer. Throws Rejected.
template <class Struct>
Struct beginning(std::span<const std::byte> payload) {
  if (payload.size() < sizeof(Struct)) {
    throw Rejected(EINVAL, fmt::format("the payload has {} bytes: expected at least {}",
                                       payload.size(), sizeof(Struct)));
  }
  return read_struct<Struct>(payload);
}

/// The structure that is the whole payload. Throws Rejected.
template <class Struct>
Struct exactly(std::span<const std::byte> payload) {
  if (payload.size() != sizeof(Struct)) {
    throw Rejected(EINVAL, fmt::format("the payload has {} bytes: expected {}", payload.size(),
                                       sizeof(Struct)));
  }
  return read_struct<Struct>(payload);
}

/// The same of one that says its size. Throws Rejected.
template <class Struct>
Struct sized(std::span<const std::byte> payload) {
  const auto request = exactly<Struct>(payload);
  if (request.argsz < sizeof(Struct)) {
    throw Rejected(EINVAL, fmt::format("argsz is {}: expected {}", request.argsz, sizeof(Struct)));
  }
  return request;
}

template <class Struct>
std::vector<std::byte> vector_of(const Struct& value) {
  const auto bytes = bytes_of(value);
  return {bytes.begin(), bytes.end()};
}

}  // namespace tpu::driver::vfio
