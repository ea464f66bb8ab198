// Bytes both ways over a connection, without waiting: for one thread that sleeps in poll().
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>

#include "socket/descriptor.hpp"

namespace tpu::base {

/// The connection has ended, or what comes over it cannot be read.
class PipeBroken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Pipe {
 public:
  virtual ~Pipe() = default;

  /// How many bytes there was room for, from the first on. What there was no room for is offered
  /// again, with the same bytes in front. Throws PipeBroken.
  virtual size_t send(std::span<const std::byte> bytes) = 0;
  /// How many bytes have come, as many as fit; 0: none. Throws PipeBroken.
  virtual size_t receive(std::span<std::byte> bytes) = 0;
  /// receive() has bytes that poll() does not see.
  virtual bool has_pending() const { return false; }
  /// For poll().
  virtual int socket() const = 0;
  /// Nothing more is sent: the other end finds the end behind what has been.
  virtual void end() = 0;
};

/// Over a connected stream socket.
std::unique_ptr<Pipe> make_socket_pipe(Descriptor socket);

}  // namespace tpu::base
