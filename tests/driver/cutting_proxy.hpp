// A TCP connection in between that a test can damage: cuts it, flips bits, sends bytes twice.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tpu::driver::test {

/// What becomes of the next bytes of a connection. They can change; true: it is cut behind them.
using Harm = std::function<bool(std::vector<char>& bytes, bool to_worker)>;

class CuttingProxy {
 public:
  CuttingProxy(const std::string& worker, Harm harm)
      : port_(std::stoi(worker.substr(worker.rfind(':') + 1))), harm_(std::move(harm)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at = loopback(0);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof at);
    ::listen(listener_, 16);
    socklen_t size = sizeof at;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size);
    address_ = "tcp:127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  CuttingProxy(const CuttingProxy&) = delete;
  CuttingProxy& operator=(const CuttingProxy&) = delete;
  ~CuttingProxy() {
    stopped_ = true;
    thread_.join();
    ::close(listener_);
  }

  const std::string& address() const { return address_; }
  int cuts() const { return cuts_; }
  /// Nobody gets through any more.
  void stop() { refuses_ = true; }

 private:
  static sockaddr_in loopback(int port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(static_cast<uint16_t>(port));
    return at;
  }

  bool readable(int a, int b) const {
    std::array<pollfd, 2> both = {{{a, POLLIN, 0}, {b, POLLIN, 0}}};
    return ::poll(both.data(), b < 0 ? 1 : 2, 20) > 0;
  }

  void serve() {
    while (!stopped_) {
      if (!readable(listener_, -1)) {
        continue;
      }
      const int here = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      const int there = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in at = loopback(port_);
      if (!refuses_ && ::connect(there, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0) {
        pass(here, there);
      }
      ::close(here);
      ::close(there);
    }
  }

  void pass(int here, int there) {
    while (!stopped_ && !refuses_) {
      if (!readable(here, there)) {
        continue;
      }
      for (const bool to_worker : {true, false}) {
        std::vector<char> bytes(size_t{64} << 10);
        const int from = to_worker ? here : there;
        const ssize_t got = ::recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
          return;
        }
        if (got > 0) {
          bytes.resize(static_cast<size_t>(got));
          const bool cut = harm_(bytes, to_worker);
          const int to = to_worker ? there : here;
          for (size_t sent = 0; sent < bytes.size();) {
            const ssize_t more = ::send(to, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
            if (more <= 0) {
              return;
            }
            sent += static_cast<size_t>(more);
          }
          if (cut) {
            ++cuts_;
            return;
          }
        }
      }
    }
  }

  const int port_;
  const Harm harm_;
  int listener_ = -1;
  std::string address_;
  std::atomic<bool> stopped_ = false, refuses_ = false;
  std::atomic<int> cuts_ = 0;
  std::thread thread_;
};

}  // namespace tpu::driver::test
