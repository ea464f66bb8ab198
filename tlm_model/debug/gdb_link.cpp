// Sockets of the connection to a debugger.
#include "debug/gdb_link.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

namespace tpu::model {
namespace {

constexpr size_t kMostEvents = 64;  // GDB waits for each answer: more is no debugger
constexpr size_t kMostRefused = 8;
constexpr int kSendSeconds = 10;

// "[ADDRESS]:PORT" to both parts; an IPv6 address in brackets.
std::pair<std::string, std::string> split_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  const bool number = !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string::npos &&
                      std::stoi(port) <= UINT16_MAX;
  if (!number) {
    throw std::runtime_error("SimOptions::gdb " + text +
                             ": expected [ADDRESS]:PORT with a port from 0 to 65535, for example "
                             ":1234, or :0 for a free port");
  }
  std::string host = text.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return {host.empty() ? "127.0.0.1" : host, port};
}

std::string name_of(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (getsockname(socket, generic, &length) != 0 ||
      getnameinfo(generic, length, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "?";
  }
  return address.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host.data(), port.data())
                                       : fmt::format("{}:{}", host.data(), port.data());
}

}  // namespace

GdbLink::GdbLink(const std::string& address) {
  const auto [host, port] = split_address(address);
  try {
    listen_at(host, port);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error("SimOptions::gdb " + address + ": " + error.what());
  }
  address_ = name_of(listener_);
}

void GdbLink::listen_at(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    throw std::runtime_error("no such address: " + std::string(gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  listener_ = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (listener_ < 0 || setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(listener_, found->ai_addr, found->ai_addrlen) != 0 ||
      listen(listener_, static_cast<int>(kMostRefused)) != 0) {
    const int error = errno;
    if (listener_ >= 0) {
      close(listener_);
    }
    throw std::runtime_error(std::string("nobody can listen there: ") + std::strerror(error) +
                             "; :0 picks a free port");
  }
}

GdbLink::~GdbLink() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    static_cast<void>(!write(wake_, &one, sizeof one));
    thread_.join();
    close(wake_);
  }
  for (const Refused& refused : refused_) {
    close(refused.fd);
  }
  if (client_ >= 0) {
    close(client_);
  }
  close(listener_);
}

void GdbLink::start(std::function<void()> on_event) {
  on_event_ = std::move(on_event);
  wake_ = eventfd(0, EFD_CLOEXEC);
  if (wake_ < 0) {
    throw std::runtime_error(std::string("SimOptions::gdb: cannot create an eventfd: ") +
                             std::strerror(errno));
  }
  thread_ = std::thread([this] { read_thread(); });
}

// ---- kernel thread

std::optional<GdbEvent> GdbLink::poll() {
  const std::lock_guard lock(mutex_);
  if (events_.empty()) {
    return std::nullopt;
  }
  GdbEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

GdbEvent GdbLink::wait() {
  std::unique_lock lock(mutex_);
  turn_.wait(lock, [this] { return !events_.empty(); });
  GdbEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void GdbLink::send(std::string_view body) {
  const std::lock_guard lock(mutex_);
  last_frame_ = rsp_frame(body);
  send_raw(last_frame_);
}

void GdbLink::end_acks() {
  const std::lock_guard lock(mutex_);
  acks_ = false;
}

// Under the mutex. A debugger that is gone is seen by the reading thread.
void GdbLink::send_raw(std::string_view bytes) {
  while (client_ >= 0 && !bytes.empty()) {
    const ssize_t sent = ::send(client_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR) {
      shutdown(client_, SHUT_RDWR);
      return;
    }
    bytes.remove_prefix(sent < 0 ? 0 : static_cast<size_t>(sent));
  }
}

// ---- reading thread

void GdbLink::read_thread() {
  for (;;) {
    std::vector<pollfd> waiting = {
        {wake_, POLLIN, 0}, {listener_, POLLIN, 0}, {client_, POLLIN, 0}};
    for (const Refused& refused : refused_) {
      waiting.push_back({refused.fd, POLLIN, 0});
    }
    if (::poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) {
      return;
    }
    if (waiting[0].revents != 0) {
      return;
    }
    for (size_t i = waiting.size(); i-- > 3;) {
      if (waiting[i].revents != 0 && !read_refused(refused_[i - 3])) {
        close(refused_[i - 3].fd);
        refused_.erase(refused_.begin() + static_cast<ptrdiff_t>(i - 3));
      }
    }
    if (client_ >= 0 && waiting[2].revents != 0) {
      read_client();
    }
    if (waiting[1].revents != 0) {
      accept_one();
    }
  }
}

void GdbLink::accept_one() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) {
    return;
  }
  const timeval limit{.tv_sec = kSendSeconds, .tv_usec = 0};
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (client_ >= 0) {
    if (refused_.size() == kMostRefused) {
      close(fd);
    } else {
      refused_.push_back({fd, false});
    }
    return;
  }
  reader_ = RspReader();
  greeted_ = false;
  {
    const std::lock_guard lock(mutex_);
    client_ = fd;
    acks_ = true;
    last_frame_.clear();
  }
}

// GDB hears an error as the answer to its first packet. False: it is gone.
bool GdbLink::read_refused(Refused& refused) {
  std::array<char, 1024> buffer{};
  const ssize_t got = recv(refused.fd, buffer.data(), buffer.size(), 0);
  if (got <= 0) {
    return false;
  }
  if (!refused.told && std::memchr(buffer.data(), '$', static_cast<size_t>(got)) != nullptr) {
    const std::string text = "+" + rsp_frame("E.another debugger is connected to this board");
    refused.told = ::send(refused.fd, text.data(), text.size(), MSG_NOSIGNAL) > 0;
    shutdown(refused.fd, SHUT_WR);
  }
  return true;
}

void GdbLink::read_client() {
  std::array<char, 4096> buffer{};
  const ssize_t got = recv(client_, buffer.data(), buffer.size(), 0);
  if (got < 0 && errno == EINTR) {
    return;
  }
  if (got <= 0 || !greet(buffer[0])) {
    drop_client();
    return;
  }
  take_items(reader_.push({buffer.data(), static_cast<size_t>(got)}));
}

// The first byte that a client sends tells whether it is a debugger.
bool GdbLink::greet(char first) {
  if (!greeted_ && rsp_begins(first)) {
    greeted_ = true;
    post({GdbEvent::Kind::kConnected, {}});
  }
  return greeted_;
}

void GdbLink::take_items(const std::vector<RspItem>& items) {
  for (const RspItem& item : items) {
    std::unique_lock lock(mutex_);
    switch (item.kind) {
      case RspItem::Kind::kAck:
        break;
      case RspItem::Kind::kNak:
        send_raw(last_frame_);
        break;
      case RspItem::Kind::kBad:
        send_raw(acks_ ? "-" : "");
        break;
      case RspItem::Kind::kPacket:
        send_raw(acks_ ? "+" : "");
        lock.unlock();
        post({GdbEvent::Kind::kPacket, item.body});
        break;
      case RspItem::Kind::kInterrupt:
        lock.unlock();
        post({GdbEvent::Kind::kInterrupt, {}});
        break;
    }
  }
}

void GdbLink::drop_client() {
  {
    const std::lock_guard lock(mutex_);
    close(std::exchange(client_, -1));
  }
  if (greeted_) {
    post({GdbEvent::Kind::kGone, {}});
  }
}

void GdbLink::post(GdbEvent event) {
  {
    const std::lock_guard lock(mutex_);
    const bool again = event.kind == GdbEvent::Kind::kInterrupt && !events_.empty() &&
                       events_.back().kind == event.kind;
    if (again) {
      return;
    }
    if (events_.size() >= kMostEvents && event.kind != GdbEvent::Kind::kGone) {
      shutdown(client_, SHUT_RDWR);
      return;
    }
    events_.push_back(std::move(event));
  }
  turn_.notify_one();
  on_event_();
}

}  // namespace tpu::model
