#include "socket/pipe.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tpu::base {
namespace {

class SocketPipe final : public Pipe {
 public:
  explicit SocketPipe(Descriptor socket) : socket_(std::move(socket)) {}

  size_t send(std::span<const std::byte> bytes) override {
    return moved(::send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }

  size_t receive(std::span<std::byte> bytes) override {
    const ssize_t got = ::recv(socket_.number(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0 && !bytes.empty()) {
      throw PipeBroken("the connection has ended");
    }
    return moved(got);
  }

  int socket() const override { return socket_.number(); }

  // What the other end has sent may be unread, so that closing would take back what is under way.
  void end() override { ::shutdown(socket_.number(), SHUT_WR); }

 private:
  static size_t moved(ssize_t count) {
    if (count < 0 && errno != EAGAIN && errno != EINTR) {
      throw PipeBroken(std::strerror(errno));
    }
    return count < 0 ? 0 : static_cast<size_t>(count);
  }

  const Descriptor socket_;
};

}  // namespace

std::unique_ptr<Pipe> make_socket_pipe(Descriptor socket) {
  return std::make_unique<SocketPipe>(std::move(socket));
}

}  // namespace tpu::base
