// The library's timeouts are of single reads and writes, so the connection is a stream of our own.
#include "exporter/timed_http.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tpu::monitor {
namespace {

using Clock = std::chrono::steady_clock;

// More than there are monitors; the others wait for one to end.
constexpr size_t kThreads = 64;

class TimedStream : public httplib::Stream {
 public:
  TimedStream(socket_t socket, Clock::time_point end) : socket_(socket), end_(end) {}

  bool is_readable() const override { return ready(POLLIN); }
  bool is_writable() const override { return ready(POLLOUT); }
  ssize_t read(char* to, size_t size) override {
    return moved(POLLIN, [&] { return ::recv(socket_, to, size, MSG_DONTWAIT); });
  }
  ssize_t write(const char* from, size_t size) override {
    return moved(POLLOUT, [&] { return ::send(socket_, from, size, MSG_DONTWAIT | MSG_NOSIGNAL); });
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    address(::getpeername, ip, port);
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    address(::getsockname, ip, port);
  }
  socket_t socket() const override { return socket_; }

 private:
  // False: its time is over.
  bool ready(short what) const {
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now()).count();
      pollfd socket{socket_, what, 0};
      const int found = ::poll(&socket, 1, static_cast<int>(std::max<int64_t>(left, 0)));
      if (found > 0 || left <= 0 || (found < 0 && errno != EINTR)) {
        return found > 0 && left > 0;
      }
    }
  }
  template <typename Move>
  ssize_t moved(short what, const Move& move) const {
    while (ready(what)) {
      const ssize_t count = move();
      if (count >= 0 || (errno != EINTR && errno != EAGAIN)) {
        return count;
      }
    }
    return -1;
  }
  template <typename Name>
  void address(const Name& name, std::string& ip, int& port) const {
    sockaddr_in found{};
    socklen_t length = sizeof found;
    char text[INET_ADDRSTRLEN] = {};
    if (name(socket_, reinterpret_cast<sockaddr*>(&found), &length) == 0 &&
        found.sin_family == AF_INET &&
        ::inet_ntop(AF_INET, &found.sin_addr, text, sizeof text) != nullptr) {
      ip = text;
      port = ntohs(found.sin_port);
    }
  }

  const socket_t socket_;
  const Clock::time_point end_;
};

}  // namespace

TimedHttpServer::TimedHttpServer(std::chrono::milliseconds limit) : limit_(limit) {
  new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
}

bool TimedHttpServer::process_and_close_socket(socket_t socket) {
  TimedStream stream(socket, Clock::now() + limit_);
  bool closed = false;
  const bool done = process_request(stream, true, closed, nullptr);
  ::shutdown(socket, SHUT_RDWR);
  ::close(socket);
  return done;
}

}  // namespace tpu::monitor
